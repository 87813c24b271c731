"""The log files of a process, by name, for REST."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.common.logs.log_file import LogFile, LogPart
from penstock.rest import facts
from penstock.rest.errors import NotFound


class LogSource(Protocol):
    """Source of logs that can be listed and read, on any machine."""

    def listing(self) -> list[facts.LogFile]:
        """Return the logs.

        Raises:
            Unavailable: the process that has them does not respond.
        """
        ...

    def read(self, name: str, start: int, most: int) -> LogPart:
        """Return a part of a log, as `LogFile.read` does.

        Raises:
            NotFound: the log does not exist. The error names the existing logs.
            Unavailable: the process that has the logs does not respond.
        """
        ...


class LogFiles:
    """Log files of this machine.

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
            raise NotFound(
                f"the log {name!r} does not exist",
                remedy=f"existing logs: {known}" if known else "this process keeps no logs",
            )
        return file.read(start, most)


class ClusterLogs:
    """Logs of a JobManager's process and of its TaskManagers.

    Args:
        of: function that returns the logs of a TaskManager, by its id.
    """

    def __init__(self, own: LogFiles, of: Callable[[str], LogSource] = lambda task_manager: LogFiles()) -> None:
        self.own = own
        self.of = of
