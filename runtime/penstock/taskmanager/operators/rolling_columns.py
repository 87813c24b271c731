"""Running aggregates over Arrow columns: what each record sees of its key's records so far, without a loop per record.

A batch is sorted by key (stable, so a key's records keep their order); in the sorted arrays each key is one *stretch*.
Counts are positions in the stretch, sums are cumulative sums minus what came before the stretch, extremes are found by
doubling: after i steps a record knows the extreme of the 2^i records up to it, and few steps do, because the longest
stretch of a batch is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datastream.windowing.aggregates import COUNT, MAX, MIN, RECORDS, SUM, FieldAggregate, Stats
from penstock.taskmanager.operators.columns import find_column
from penstock.taskmanager.operators.window_columns import SAFE_SUM, number_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.taskmanager.operators.fields import Field

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

_EXACT = 1 << 53
"""Above it a float stands for several integers."""
_SMALL = 1 << 16
"""Up to so many keys numpy sorts by radix."""


class NotInColumns(Exception):
    """An accumulator holds a number that 64 bits cannot go on from: the batch must be processed as Python objects."""


class KeyStretches:
    """The records of a batch, sorted by key.

    Attributes:
        keys: every key that occurs, in the order of `key_column`'s codes.
        order: position in the batch of every sorted record.
        first: where each stretch begins among the sorted records; stretches are in the order of `codes`.
    """

    def __init__(self, key_column: pa.Array, inputs: list[pa.Array | None], aggregate: FieldAggregate) -> None:
        encoded = key_column if pa.types.is_dictionary(key_column.type) else key_column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        self.key_column = key_column
        self.inputs = inputs
        self.aggregate = aggregate
        if len(encoded.dictionary) < _SMALL:
            codes = codes.astype(np.uint16)
        self.order: Longs = np.argsort(codes, kind="stable")
        ordered = codes[self.order]
        self.first: Longs = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        self.codes: Longs = ordered[self.first]
        self.keys: list[Any] = encoded.dictionary.take(pa.array(self.codes)).to_pylist()
        self.lengths: Longs = np.diff(self.first, append=len(codes))
        self.last: Longs = self.first + self.lengths - 1

    @staticmethod
    def of(columns: pa.RecordBatch, key_field: Field, aggregate: FieldAggregate) -> KeyStretches | None:
        """None if the types need the way through Python objects."""
        inputs = [None if field is None else number_column(columns, field) for field in aggregate.fields]
        if any(column is None and field is not None for column, field in zip(inputs, aggregate.fields, strict=True)):
            return None
        keys = find_column(columns, key_field)
        if keys is None or keys.null_count or pa.types.is_nested(keys.type):
            return None
        return KeyStretches(keys, inputs, aggregate)

    def spread(self, per_stretch: Numbers) -> Numbers:
        """A value per stretch as a value per sorted record."""
        return np.repeat(per_stretch, self.lengths)

    def unsorted(self, values: Numbers) -> Numbers:
        """Values of the sorted records in the order of the batch."""
        result = np.empty_like(values)
        result[self.order] = values
        return result


def running_aggregates(
    stretches: KeyStretches, before: list[tuple[Any, ...]]
) -> tuple[pa.RecordBatch, list[tuple[Any, ...]]]:
    """The key and the aggregates of every record in the order of the batch, and the accumulator each key ends with.

    Args:
        before: the accumulator of each of `stretches.keys`, a fresh one for a new key.

    Raises:
        NotInColumns: nothing was changed.
    """
    aggregate = stretches.aggregate
    is_single = len(aggregate.fields) == 1
    starts: list[Any] = [before] if is_single else list(zip(*before, strict=True))
    runs = {
        field: _FieldRun(stretches, column, need, list(zip(*start, strict=True)))
        for start, field, need, column in zip(starts, aggregate.fields, aggregate.needs, stretches.inputs, strict=True)
    }
    names = [kind if field is None else f"{kind}_{field}" for kind, field in aggregate.parts]
    arrays = [
        runs[aggregate.fields[0]].column("records") if field is None else runs[field].column(kind)
        for kind, field in aggregate.parts
    ]
    ends = [run.ended() for run in runs.values()]
    after: list[Any] = ends[0] if is_single else list(zip(*ends, strict=True))
    return pa.RecordBatch.from_arrays([stretches.key_column, *arrays], ["key", *names]), after


class _FieldRun:
    """Running stats of one field, for the sorted records.

    Args:
        start: the stats of every key before the batch, one tuple per stat.
    """

    def __init__(
        self, stretches: KeyStretches, column: pa.Array | None, need: frozenset[str], start: list[tuple[Any, ...]]
    ) -> None:
        self._stretches = stretches
        self._start = start
        self._is_integer = column is not None and pa.types.is_integer(column.type)
        self.records = self._numbered()
        self.count = self._counts(column)
        self.sum: Numbers | None = None
        self.low: Numbers | None = None
        self.high: Numbers | None = None
        if column is None or not need & {"mean", "sum", "min", "max"}:
            return
        if need & {"mean", "sum"}:
            self.sum = self._sums(self._values(column, 0))
        limit = np.inf if pa.types.is_floating(column.type) else np.iinfo(np.int64).max
        if "min" in need:
            self.low = self._extremes(self._values(column, limit), MIN, limit, np.minimum)
        if "max" in need:
            self.high = self._extremes(self._values(column, -limit), MAX, -limit, np.maximum)

    def _values(self, column: pa.Array, instead_of_null: float) -> Numbers:
        filled = column.fill_null(instead_of_null) if column.null_count else column
        values: Numbers = filled.to_numpy(zero_copy_only=False)[self._stretches.order]
        return values

    def _begin(self, stat: int, default: Any) -> Numbers:
        """What each key starts with."""
        values = self._start[stat]
        begin = np.array([default if value is None else value for value in values] if None in values else values)
        is_long = begin.dtype == np.int64
        if not is_long and begin.dtype != np.float64:
            raise NotInColumns
        if (
            self._is_integer
            and (stat == SUM or not is_long)
            and np.abs(begin).max() >= (SAFE_SUM if is_long else _EXACT)
        ):
            raise NotInColumns
        return begin

    def _numbered(self) -> Longs:
        """Which record of its key each one is."""
        spread, first = self._stretches.spread, self._stretches.first
        begin = self._begin(RECORDS, 0) + 1 - first
        return spread(begin) + np.arange(len(self._stretches.order))

    def _counts(self, column: pa.Array | None) -> Longs:
        stretches = self._stretches
        if column is None:
            return stretches.spread(self._begin(COUNT, 0))
        if not column.null_count:
            return self.records + stretches.spread(self._begin(COUNT, 0) - self._begin(RECORDS, 0))
        valid = column.is_valid().to_numpy(zero_copy_only=False)[stretches.order].astype(np.int64)
        return stretches.spread(self._begin(COUNT, 0)) + self._cumulated(valid)

    def _cumulated(self, values: Numbers) -> Numbers:
        """Sums within each stretch, up to and with each record."""
        total = np.cumsum(values)
        first = self._stretches.first
        return total - self._stretches.spread(total[first] - values[first])

    def _sums(self, values: Numbers) -> Numbers:
        return self._stretches.spread(self._begin(SUM, 0)) + self._cumulated(values)

    def _extremes(self, values: Numbers, stat: int, limit: float, choose: np.ufunc) -> Numbers:
        stretches = self._stretches
        first, longest = stretches.first, int(stretches.lengths.max())
        begin = self._begin(stat, limit)
        best = values.astype(np.result_type(values.dtype, begin.dtype))
        best[first] = choose(best[first], begin)
        place = np.arange(len(best)) - stretches.spread(first)
        step = 1
        while step < longest:
            reach = place[step:] >= step
            best[step:] = np.where(reach, choose(best[step:], best[:-step]), best[step:])
            step *= 2
        return best

    def column(self, kind: str) -> pa.Array:
        """The aggregate of every record in the order of the batch; null where nothing was counted yet."""
        stretches = self._stretches
        if kind in ("records", "count"):
            return pa.array(stretches.unsorted(self.records if kind == "records" else self.count))
        values = {"mean": self.sum, "sum": self.sum, "min": self.low, "max": self.high}[kind]
        assert values is not None
        counts = stretches.unsorted(self.count)
        numbers = stretches.unsorted(values)
        if kind == "mean":
            numbers = numbers / np.maximum(counts, 1)
        nothing = counts == 0
        return pa.array(numbers, mask=nothing if nothing.any() else None)

    def ended(self) -> list[Stats]:
        """What every key ends with."""
        last = self._stretches.last
        records, counts = self.records[last].tolist(), self.count[last].tolist()
        sums = self._start[SUM] if self.sum is None else self.sum[last].tolist()
        lows = self._start[MIN] if self.low is None else self.low[last].tolist()
        highs = self._start[MAX] if self.high is None else self.high[last].tolist()
        if 0 in counts:
            lows = [low if count else None for low, count in zip(lows, counts, strict=True)]
            highs = [high if count else None for high, count in zip(highs, counts, strict=True)]
        return list(zip(records, counts, sums, lows, highs, strict=True))
