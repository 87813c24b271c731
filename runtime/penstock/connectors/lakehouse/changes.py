"""Which files of a table a source reads: those of one version of it, or what later commits have added.

A source that follows a table reads what is appended. Files that were only rewritten (compacted) hold nothing new and are passed over. A
commit that takes rows away or changes them is no append, and what it means for the job cannot be told from its files: it is an
error, unless such commits are to be skipped. The version that was looked at last is the enumerator's state.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.source import Split, SplitEnumerator

logger = logging.getLogger(__name__)

OnChange = Literal["fail", "skip"]


class Commit(NamedTuple):
    """What one commit has done. `change`: what it did besides adding rows; empty: nothing."""

    version: int
    files: list[Split]
    change: str = ""


class TableChanges(ABC):
    """A table as a source's enumerator needs it."""

    name: str

    @abstractmethod
    def snapshot(self, version: int | None) -> tuple[int, list[Split]]:
        """A version, the newest if None: its number, and all its files.

        Raises:
            SourceError: it is not there (any more), or has files that cannot be read.
        """

    @abstractmethod
    def newest(self) -> int: ...

    @abstractmethod
    def since(self, version: int) -> list[Commit]:
        """Later commits, in their order.

        Raises:
            SourceError: the table does not know them any more.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections."""


class Reading(NamedTuple):
    """What of a table is read.

    `version`: of the table, for a bounded source; None: the newest. `follow_ms`: how often it is looked for commits; None: the source is
    bounded. `start`: a source that follows begins with all rows ("snapshot"), with what comes ("latest"), or behind a version.
    """

    version: int | None = None
    follow_ms: int | None = None
    start: Literal["snapshot", "latest"] | int = "snapshot"
    on_change: OnChange = "fail"

    @classmethod
    def of(cls, version: int | None, follow: TimeLike | None, start: Any, on_change: str) -> Reading:
        """
        Raises:
            InvalidJob: they contradict each other.
        """
        if on_change not in ("fail", "skip"):
            raise InvalidJob(f"on_change={on_change!r}", remedy="write 'fail' or 'skip'")
        if start not in ("snapshot", "latest") and not isinstance(start, int):
            raise InvalidJob(f"start={start!r}", remedy="write 'snapshot', 'latest' or a version")
        if follow is None and start != "snapshot":
            raise InvalidJob(f"start={start!r} of a bounded source", remedy="give follow=timedelta(…), or version=…")
        if follow is not None and version is not None:
            raise InvalidJob("version= of a source that follows its table", remedy="start=version begins behind it")
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
                    remedy="on_change='skip' reads on behind such commits; or start the job anew, with a snapshot",
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
