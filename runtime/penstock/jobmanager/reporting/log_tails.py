"""What has come into the logs of a cluster since somebody looked last: of the JobManager's process and of each TaskManager.

The files are those that REST shows, so levels, form and masked secrets are as there, and workers have nothing to do for it. What a file that
is full has let go of before it was looked at is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penstock.common.errors import PenstockError
from penstock.jobmanager.reporting.log_entries import begins, entries
from penstock.metrics.reporter import LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.logs.log_file import LogPart
    from penstock.rest import facts

_PART = 1 << 20
_MOST_PARTS = 8
"""Of one file, at a time."""
_SUFFIX = ".log"

logger = logging.getLogger(__name__)


class Logs(Protocol):
    """As `rest.gateway.ClusterGateway` has them; None: the JobManager's."""

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]: ...

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart: ...


@dataclass
class _Tail:
    at: int = 0
    rest: str = ""
    """The record that has come last: more of it may follow."""


class LogTails:
    """Used from one thread.

    Args:
        task_managers: gives the ids of those that there are.
        job_ids: of jobs, by name: text does not have them.
    """

    def __init__(
        self, logs: Logs, task_managers: Callable[[], Sequence[str]], job_ids: Callable[[], Mapping[str, str]]
    ) -> None:
        self._logs = logs
        self._task_managers = task_managers
        self._job_ids = job_ids
        self._tails: dict[tuple[str | None, str], _Tail] = {}

    def new(self, *, last: bool = False) -> list[LogEntry]:
        """In order of their times. A record that a file ends with comes when nothing has followed it until the next look.

        Args:
            last: there is no other look.
        """
        found: list[LogEntry] = []
        for task_manager in (None, *self._those_there()):
            try:
                for file in self._logs.logs(task_manager):
                    if file.name.endswith(_SUFFIX):
                        found += self._new_in(task_manager, file.name, last=last)
            except PenstockError as error:  # it is gone, or does not answer now
                logger.debug("logs of %s are not read: %s", task_manager, error)
        ids = self._job_ids()
        return [_identified(entry, ids) for entry in sorted(found, key=lambda entry: entry.time)]

    def _those_there(self) -> Sequence[str]:
        try:
            return self._task_managers()
        except Exception as error:  # a cluster that is starting or has gone has none
            logger.debug("TaskManagers are not known: %s", error)
            return ()

    def _new_in(self, task_manager: str | None, name: str, *, last: bool) -> Iterator[LogEntry]:
        tail = self._tails.setdefault((task_manager, name), _Tail())
        labels = {} if task_manager is None else {"tm_id": task_manager}
        data = b"".join(self._parts(task_manager, name, tail))
        text = tail.rest + data.decode(errors="replace")
        whole, tail.rest = (text, "") if last or not data else _cut(text)
        return entries(whole, labels)

    def _parts(self, task_manager: str | None, name: str, tail: _Tail) -> Iterator[bytes]:
        for _ in range(_MOST_PARTS):
            part = self._logs.read_log(task_manager, name, tail.at, _PART)
            tail.at = part.end
            yield part.data
            if part.end >= part.size:
                return


def _cut(text: str) -> tuple[str, str]:
    """In front of the last record."""
    lines = text.splitlines(keepends=True)
    for index in range(len(lines) - 1, -1, -1):
        if begins(lines[index].rstrip("\n")):
            return "".join(lines[:index]), "".join(lines[index:])
    return "", text


def _identified(entry: LogEntry, ids: Mapping[str, str]) -> LogEntry:
    name = entry.labels.get("job_name", "")
    if "job_id" in entry.labels or name not in ids:
        return entry
    return replace(entry, labels={**entry.labels, "job_id": ids[name]})
