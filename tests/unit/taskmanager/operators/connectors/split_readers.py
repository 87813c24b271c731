"""Sources and split readers for the tests of the source operator."""

from __future__ import annotations

from typing import Any

from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import Batch, RowBatch


class Batches(SplitReader):
    """A reader that returns the batches of its split, or None for None. It is finished after the last one."""

    def __init__(self, batches: list[list[int] | None], position: int) -> None:
        self._batches = batches
        self._position = position

    def read(self, bounds: ReadBounds) -> Batch | None:
        if self.finished:
            return None
        values = self._batches[self._position]
        self._position += 1
        return None if values is None else RowBatch(list(values), None)

    @property
    def position(self) -> int:
        return self._position

    @property
    def finished(self) -> bool:
        return self._position == len(self._batches)

    def lag(self) -> int:
        return len(self._batches) - self._position


class BatchesReader(SourceReader):
    def __init__(self, source: Splits) -> None:
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        self._source.opened.append(split.id)
        return Batches(self._source.contents[int(split.id)], position or 0)

    def lag_of(self, split: Split, position: Any) -> int:
        return len(self._source.contents[int(split.id)]) - (position or 0)


class Splits(Source):
    """A source with one split for each list of batches."""

    def __init__(self, contents: list[list[list[int] | None]]) -> None:
        self.contents = contents
        self.opened: list[str] = []

    def create_enumerator(self) -> SplitEnumerator:
        return AllAtOnce(len(self.contents))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return BatchesReader(self)


class AllAtOnce(SplitEnumerator):
    def __init__(self, count: int) -> None:
        self._count = count

    def discover(self) -> list[Split]:
        return [Split(str(number)) for number in range(self._count)]


class UnboundedSplits(Splits):
    bounded = False


class DuckReader:
    """A class with the original methods of split readers, but without the base class."""

    moves_without_records = False
    position = 0

    def read(self, bounds: ReadBounds) -> Batch | None:
        self.position += 1
        return RowBatch([self.position], None)

    @property
    def finished(self) -> bool:
        return self.position == 3

    def __getattr__(self, name: str) -> Any:
        if name in ("is_caught_up", "has_given_all"):
            raise AttributeError(name)
        return {"take_rejected": list, "take_watermarks": list, "is_idle": bool, "close": bool}.get(name, lambda: None)
