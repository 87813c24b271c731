"""`DataGeneratorSource`: records made by a function of their index, at a given rate per second.

A monotonic clock controls the rate. Record number n of a split is due n/rate seconds after the reader was opened, and a late
read returns all records that are due. After a restore the schedule restarts at the index of the checkpoint.
"""

from __future__ import annotations

import math
from operator import length_hint
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.program.user_frames import user_line
from penstock.common.type_info.type_inference import result_type
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.simple.sequence import ranges
from penstock.functions.operator_context import Clock, SystemClock
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable

_FOREVER = 1 << 62


class DataGeneratorSource(Source):
    """A source of the records `function(0)`, `function(1)`, …; bounded if `count` is given.

    Args:
        function: a function from an index to a record. It must return the same record for the same index. Otherwise, a replay returns
            different records.
        count: the number of records; None means unbounded.
        records_per_second: the rate of all splits together; None means as fast as the job reads.
        splits: how many splits share the indexes; one per subtask by default. A bounded generator gives each split a range.
            An unbounded generator with n splits gives each split every n-th index.

    >>> DataGeneratorSource(lambda index: index * index, count=3).bounded
    True
    """

    def __init__(
        self,
        function: Callable[[int], Any],
        count: int | None = None,
        records_per_second: float | None = None,
        *,
        splits: int | None = None,
        type_info: Any = None,
    ) -> None:
        if not callable(function) and not callable(getattr(function, "map", None)):
            raise InvalidJob(f"{function!r} is not a function of the index", remedy="pass a callable that takes an int")
        if count is not None and count < 0:
            raise InvalidJob(f"count={count} of a generator is negative", remedy="set count to at least 0")
        if records_per_second is not None and records_per_second <= 0:
            raise InvalidJob(
                f"records_per_second={records_per_second} of a generator is not positive", remedy="set a positive rate"
            )
        if splits is not None and splits < 1:
            raise InvalidJob(f"a generator needs at least one split, got {splits}", remedy="set splits to at least 1")
        self.function = function
        self.count = count
        self.records_per_second = records_per_second
        self.splits = splits
        self.type_info = type_info
        self.bounded = count is not None

    def create_enumerator(self) -> SplitEnumerator:
        return GeneratorEnumerator(self.count, self.splits)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return GeneratorReader(self, context)

    def produced_type(self) -> Any:
        return result_type(self.function, "map") if self.type_info is None else self.type_info


class GeneratorEnumerator(SplitEnumerator):
    def __init__(self, count: int | None, splits: int | None) -> None:
        self._count = count
        self._splits = splits

    def discover(self) -> list[Split]:
        parts = self._splits or max(1, self.parallelism)
        if self._count is None:
            return [
                Split(f"{n}/{parts}", {"start": n, "end": _FOREVER, "step": parts, "share": 1 / parts})
                for n in range(parts)
            ]
        return [
            Split(
                f"{low}-{high}", {"start": low, "end": high, "step": 1, "share": (high - low) / self._count}, high - low
            )
            for low, high in ranges(0, self._count, parts)
        ]


class GeneratorReader(SourceReader):
    def __init__(self, source: DataGeneratorSource, context: ReaderContext) -> None:
        self._function: Callable[[int], Any] = getattr(source.function, "map", source.function)
        self._rate = source.records_per_second
        operator = context.operator
        self._clock: Clock = SystemClock() if operator is None else operator.clock

    def open_split(self, split: Split, position: Any) -> SplitReader:
        found = split.properties
        rate = None if self._rate is None else self._rate * found["share"]
        start = found["start"] if position is None else position
        return GeneratorSplitReader(self._function, range(start, found["end"], found["step"]), rate, self._clock)


class GeneratorSplitReader(SplitReader):
    """A reader that makes the records of `indexes`. Record number n of these is due n/rate seconds after the reader's creation."""

    def __init__(self, function: Callable[[int], Any], indexes: range, rate: float | None, clock: Clock) -> None:
        self._function = function
        self._indexes = indexes
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic_ms()
        self._emitted = 0

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        until = min(len(self._indexes), self._emitted + max(1, bounds.max_records))
        if self._rate is not None:
            until = min(until, int((self._clock.monotonic_ms() - self._began) * self._rate / 1000) + 1)
        if until <= self._emitted:
            return None
        indexes = self._indexes[self._emitted : until]
        iterator = iter(indexes)
        try:
            values = list(map(self._function, iterator))
        except Exception as error:
            failed = indexes[len(indexes) - length_hint(iterator) - 1]
            raise UserFunctionError(
                f"the generator's function raised {type(error).__name__} for index {failed}: {error}{user_line(error)}",
                remedy="correct the function",
            ) from error
        self._emitted = until
        return RowBatch(values)

    @property
    def position(self) -> int:
        return self._indexes.start + self._emitted * self._indexes.step

    @property
    def finished(self) -> bool:
        return self._emitted >= len(self._indexes)

    def lag(self) -> int | None:
        """Return the number of records that are due and not yet read, or None if no rate is set."""
        if self._rate is None:
            return None
        due = min(len(self._indexes), int((self._clock.monotonic_ms() - self._began) * self._rate / 1000) + 1)
        return max(0, due - self._emitted)

    def next_record_at(self) -> int | None:
        if self._rate is None or self.finished:
            return None
        due = self._began + math.ceil(self._emitted * 1000 / self._rate)
        return due - self._clock.monotonic_ms() + self._clock.now_ms()
