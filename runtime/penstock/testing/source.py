"""The source that a test pushes into. It reads the test's journal by splits and positions, like any other source."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import RecoverableError
from penstock.connectors.core.source import (
    NotingSplitReader,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import Batch, RowBatch
from penstock.testing.journal import Journal, Kind, decode


class CrashMarkReached(RecoverableError):
    """The error that lets the job fail over, once, when a source reaches a `CRASH` mark."""

    code = "CRASH_MARK"


class HarnessSource(Source):
    """One named source of a `JobHarness`. It is unbounded until it is closed."""

    bounded = False

    def __init__(self, name: str, journal: Journal, splits: int, type_info: Any = None) -> None:
        self.name = name
        self.journal = journal
        self.splits = splits
        self.type_info = type_info

    def create_enumerator(self) -> SplitEnumerator:
        return _Enumerator(self.splits)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self.name, self.journal)

    def produced_type(self) -> Any:
        return self.type_info


class _Enumerator(SplitEnumerator):
    def __init__(self, splits: int) -> None:
        self._splits = splits

    def discover(self) -> list[Split]:
        return [Split(str(number)) for number in range(self._splits)]


class _Reader(SourceReader):
    def __init__(self, source: str, journal: Journal) -> None:
        self._source = source
        self._journal = journal

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return _SplitReader(self._source, int(split.id), self._journal, position or 0)


class _SplitReader(NotingSplitReader):
    """A reader that returns records up to the next watermark, together with the watermark."""

    def __init__(self, source: str, split: int, journal: Journal, position: int) -> None:
        super().__init__(position)
        self._source = source
        self._split = split
        self._journal = journal
        journal.read_to(source, split, position)

    def read(self, bounds: ReadBounds) -> Batch | None:
        journal = self._journal
        values: list[Any] = []
        timestamps: list[int] = []
        while self._position < journal.horizon and not self._finished:
            entry = journal.entries[self._position]
            if entry.source != self._source or entry.split not in (None, self._split):
                self._position += 1
                continue
            if entry.kind is Kind.RECORD:
                has_timestamp = entry.timestamp is not None
                if values and (has_timestamp != bool(timestamps) or len(values) >= bounds.max_records):
                    break
                values.append(decode(entry.payload))
                if entry.timestamp is not None:
                    timestamps.append(entry.timestamp)
                self._position += 1
                continue
            if values and entry.kind is not Kind.WATERMARK:
                break
            self._position += 1
            if self._take(entry.kind, entry.timestamp):
                break
        if not self._finished:
            journal.read_to(self._source, self._split, self._position)
        return RowBatch(values, timestamps or None) if values else None

    def _take(self, kind: Kind, timestamp: int | None) -> bool:
        """Handle an entry that is not a record. Return True if the task must handle it before the next record."""
        if kind is Kind.CRASH:
            if not self._journal.meets_crash(self._position - 1):
                return False
            raise CrashMarkReached(f"source {self._source!r} has reached the CRASH that was pushed into it")
        if kind is Kind.WATERMARK:
            self._watermark = timestamp
        elif kind is Kind.CLOSE:
            self._finished = True
            self._journal.closed(self._source, self._split)
        else:
            self._idle = kind is Kind.IDLE
        return True
