"""The log files of a process, by name, for who asks over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.common.logs.log_file import LogFile, LogPart
from penstock.rest import facts
from penstock.rest.errors import NotFound


class LogSource(Protocol):
    """Logs that can be listed and read, wherever they are."""

    def listing(self) -> list[facts.LogFile]:
        """
        Raises:
            Unavailable: who has them does not answer.
        """
        ...

    def read(self, name: str, start: int, most: int) -> LogPart:
        """As `LogFile.read`.

        Raises:
            NotFound: there is no such log; names those there are.
            Unavailable: who has them does not answer.
        """
        ...


class LogFiles:
    """
    >>> LogFiles([LogFile("/tmp/jobmanager.log")]).listing()
    [LogFile(name='jobmanager.log', size=0, modified_at=0)]
    """

    def __init__(self, files: Iterable[LogFile] = ()) -> None:
        self._files = {file.name: file for file in files}

    def listing(self) -> list[facts.LogFile]:
        return [facts.LogFile(name, file.kept, file.modified_at) for name, file in self._files.items()]

    def read(self, name: str, start: int, most: int) -> LogPart:
        file = self._files.get(name)
        if file is None:
            known = ", ".join(self._files)
            raise NotFound(f"there is no log {name!r}", remedy=f"there are {known}" if known else "none is kept here")
        return file.read(start, most)


class ClusterLogs:
    """Of a JobManager's process and of its TaskManagers.

    Args:
        of: those of a TaskManager, by its id.
    """

    def __init__(self, own: LogFiles, of: Callable[[str], LogSource] = lambda task_manager: LogFiles()) -> None:
        self.own = own
        self.of = of
