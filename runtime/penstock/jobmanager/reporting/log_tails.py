"""New log records since the last call, from the logs of the JobManager's process and of each TaskManager.

The module reads the same files as REST. So log levels, format and masked secrets are the same, and workers need no additional work. If a
full file drops records before they are read, these records are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penstock.common.errors import PenstockError
from penstock.jobmanager.reporting.log_entries import entries, starts_entry
from penstock.metrics.reporter import LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.logs.log_file import LogPart
    from penstock.rest import facts

_PART = 1 << 20
_MAX_PARTS = 8
"""Maximum number of parts of one file that are read in a call."""
_SUFFIX = ".log"

logger = logging.getLogger(__name__)


class Logs(Protocol):
    """Function that returns logs, as `rest.gateway.ClusterGateway` does. None means the JobManager's logs."""

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]: ...

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart: ...


@dataclass
class _Tail:
    at: int = 0
    rest: str = ""
    """Last record so far. More lines of this record may follow."""


class LogTails:
    """Readers of all logs. Only one thread may use an object.

    Args:
        task_managers: function that returns the ids of the TaskManagers.
        job_ids: function that returns job ids by name, because text logs do not contain the ids.
    """

    def __init__(
        self, logs: Logs, task_managers: Callable[[], Sequence[str]], job_ids: Callable[[], Mapping[str, str]]
    ) -> None:
        self._logs = logs
        self._task_managers = task_managers
        self._job_ids = job_ids
        self._tails: dict[tuple[str | None, str], _Tail] = {}

    def new(self, *, last: bool = False) -> list[LogEntry]:
        """Return new records in order of their times. The last record of a file is delayed by one call, because lines may follow.

        Args:
            last: whether this is the last call.
        """
        found: list[LogEntry] = []
        for task_manager in (None, *self._registered_task_managers()):
            try:
                for file in self._logs.logs(task_manager):
                    if file.name.endswith(_SUFFIX):
                        found += self._new_in(task_manager, file.name, last=last)
            except PenstockError as error:  # the TaskManager is lost, or does not respond now
                logger.debug("logs of %s cannot be read: %s", task_manager, error)
        ids = self._job_ids()
        return [_identified(entry, ids) for entry in sorted(found, key=lambda entry: entry.time)]

    def _registered_task_managers(self) -> Sequence[str]:
        try:
            return self._task_managers()
        except Exception as error:  # a cluster that is starting or has stopped has no TaskManagers
            logger.debug("TaskManagers cannot be listed: %s", error)
            return ()

    def _new_in(self, task_manager: str | None, name: str, *, last: bool) -> Iterator[LogEntry]:
        tail = self._tails.setdefault((task_manager, name), _Tail())
        labels = {} if task_manager is None else {"tm_id": task_manager}
        data = b"".join(self._parts(task_manager, name, tail))
        text = tail.rest + data.decode(errors="replace")
        whole, tail.rest = (text, "") if last or not data else _cut(text)
        return entries(whole, labels)

    def _parts(self, task_manager: str | None, name: str, tail: _Tail) -> Iterator[bytes]:
        for _ in range(_MAX_PARTS):
            part = self._logs.read_log(task_manager, name, tail.at, _PART)
            tail.at = part.end
            yield part.data
            if part.end >= part.size:
                return


def _cut(text: str) -> tuple[str, str]:
    """Split the text before its last record."""
    lines = text.splitlines(keepends=True)
    for index in range(len(lines) - 1, -1, -1):
        if starts_entry(lines[index].rstrip("\n")):
            return "".join(lines[:index]), "".join(lines[index:])
    return "", text


def _identified(entry: LogEntry, ids: Mapping[str, str]) -> LogEntry:
    name = entry.labels.get("job_name", "")
    if "job_id" in entry.labels or name not in ids:
        return entry
    return replace(entry, labels={**entry.labels, "job_id": ids[name]})
