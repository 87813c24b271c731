"""The files of a table that a source reads: the files of one version, or the files that later commits add.

A source that follows a table reads appended files. Rewritten (compacted) files hold no new rows, so the source skips them. A commit that
deletes or changes rows is not an append, and its files do not show how the job should treat the change. Such a commit is an error unless
`on_change` says to skip it. The enumerator's state is the version that it read last.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import Split, SplitEnumerator

logger = logging.getLogger(__name__)

OnChange = Literal["fail", "skip"]


class Commit(NamedTuple):
    """The effect of one commit. `change` describes the other effects if the commit did more than add rows. Otherwise it is empty."""

    version: int
    files: list[Split]
    change: str = ""


class TableChanges(ABC):
    """The operations that a source's enumerator needs from a table."""

    name: str

    @abstractmethod
    def snapshot(self, version: int | None) -> tuple[int, list[Split]]:
        """Return the version's number and all its files. None means the newest version.

        Raises:
            SourceError: the version does not exist or has expired, or the source cannot read some of its files.
        """

    @abstractmethod
    def newest(self) -> int: ...

    @abstractmethod
    def since(self, version: int) -> list[Commit]:
        """Return the commits after `version`, in order.

        Raises:
            SourceError: the table no longer lists these commits.
        """

    def close(self) -> None:  # noqa: B027 - most implementations have nothing to close
        """Close connections."""


class Reading(NamedTuple):
    """The part of a table that a source reads.

    `version`: the table's version that a bounded source reads. None means the newest version.
    `follow_ms`: the interval between two polls for new commits. None means that the source is bounded.
    `start`: the rows that a following source reads first: all rows ("snapshot"), only new rows ("latest"), or the rows after a given version.
    """

    version: int | None = None
    follow_ms: int | None = None
    start: Literal["snapshot", "latest"] | int = "snapshot"
    on_change: OnChange = "fail"

    @classmethod
    def of(cls, version: int | None, follow: TimeLike | None, start: Any, on_change: str) -> Reading:
        """Return the reading that the arguments of a source describe.

        Raises:
            InvalidJob: the arguments contradict each other.
        """
        if on_change not in ("fail", "skip"):
            raise InvalidJob(f"on_change={on_change!r} is not valid", remedy="write 'fail' or 'skip'")
        if start not in ("snapshot", "latest") and not isinstance(start, int):
            raise InvalidJob(f"start={start!r} is not valid", remedy="write 'snapshot', 'latest' or a version")
        if follow is None and start != "snapshot":
            raise InvalidJob(
                f"start={start!r} needs follow=, because a bounded source reads one version",
                remedy="set follow=timedelta(…), or use version=… in place of start=",
            )
        if follow is not None and version is not None:
            raise InvalidJob(
                "version= and follow= exclude each other",
                remedy="set follow= and start=version to begin after that version",
            )
        return cls(version, None if follow is None else as_millis(follow, "follow"), start, on_change)  # type: ignore[arg-type]


class TableEnumerator(SplitEnumerator):
    forgets_finished = True

    def __init__(self, changes: TableChanges, reading: Reading) -> None:
        self.discovery_interval_ms = reading.follow_ms
        self._changes = changes
        self._reading = reading
        self._at: int | None = None

    def discover(self) -> list[Split]:
        if self._at is not None:
            return [] if self.discovery_interval_ms is None else self._new()
        if self._reading.start == "snapshot":
            self._at, splits = self._changes.snapshot(self._reading.version)
            return splits
        if self._reading.start == "latest":
            self._at = self._changes.newest()
            return []
        self._at = self._reading.start
        return self._new()

    def _new(self) -> list[Split]:
        assert self._at is not None
        splits: list[Split] = []
        for commit in self._changes.since(self._at):
            if not commit.change:
                splits += commit.files
            elif self._reading.on_change == "fail":
                raise SourceError(
                    f"version {commit.version} of table {self._changes.name!r} does not only add rows: {commit.change}",
                    remedy="set on_change='skip' to skip such commits; or start the job without state, which reads a new snapshot",
                )
            else:
                logger.warning(
                    "version %d of table %r is skipped: %s", commit.version, self._changes.name, commit.change
                )
            self._at = commit.version
        return splits

    def snapshot(self) -> Any:
        return self._at

    def restore(self, state: Any) -> None:
        self._at = state

    def close(self) -> None:
        self._changes.close()
