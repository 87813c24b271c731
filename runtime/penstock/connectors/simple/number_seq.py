"""`NumberSequenceSource`: the numbers of a range."""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import Types
from penstock.connectors.core.source import ReaderContext, Source
from penstock.connectors.simple.sequence import RangeEnumerator, RangeReader


class NumberSequenceSource(Source):
    """A bounded source of the numbers from `start` to `end`, both included.

    Args:
        splits: how many ranges are read in parallel, each in order; one per subtask by default.

    >>> source = NumberSequenceSource(1, 10)
    >>> [split.id for split in source.create_enumerator().discover()]
    ['1-11']
    """

    def __init__(self, start: int, end: int, *, splits: int | None = None) -> None:
        if start > end:
            raise InvalidJob(f"a number sequence from {start} to {end} is empty", remedy="set end to at least start")
        if splits is not None and splits < 1:
            raise InvalidJob(
                f"a number sequence needs at least one split, got {splits}", remedy="set splits to at least 1"
            )
        self.start = start
        self.end = end
        self.splits = splits

    def create_enumerator(self) -> RangeEnumerator:
        return RangeEnumerator(self.start, self.end + 1, self.splits)

    def create_reader(self, context: ReaderContext) -> RangeReader:
        return RangeReader(lambda start, end: list(range(start, end)))

    def produced_type(self) -> Any:
        return Types.LONG()
