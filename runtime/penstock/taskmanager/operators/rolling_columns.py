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

from penstock.datastream.windowing.aggregates import COUNT, MAX, MIN, STATS, SUM, FieldAggregate
from penstock.taskmanager.operators.columns import find_column
from penstock.taskmanager.operators.window_columns import number_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.taskmanager.operators.fields import Field

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

_SMALL = 1 << 16
"""Up to so many keys numpy sorts by radix."""


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
        return None if keys is None or keys.null_count else KeyStretches(keys, inputs, aggregate)

    def spread(self, per_stretch: Numbers) -> Numbers:
        """A value per stretch as a value per sorted record."""
        return np.repeat(per_stretch, self.lengths)

    def unsorted(self, values: Numbers) -> Numbers:
        """Values of the sorted records in the order of the batch."""
        result = np.empty_like(values)
        result[self.order] = values
        return result


def running_aggregates(
    stretches: KeyStretches, before: list[list[Any] | None]
) -> tuple[pa.RecordBatch, list[list[Any]]]:
    """The key and the aggregates of every record in the order of the batch, and the accumulator each key ends with.

    Args:
        before: the accumulator of each of `stretches.keys`, None for a new one.
    """
    aggregate = stretches.aggregate
    after: list[list[Any]] = [[] for _ in before]
    running: dict[tuple[str, Field | None], pa.Array] = {}
    for index, (field, need, column) in enumerate(
        zip(aggregate.fields, aggregate.needs, stretches.inputs, strict=True)
    ):
        start = [None if old is None else old[index * STATS : index * STATS + STATS] for old in before]
        stats = _FieldRun(stretches, column, need, start)
        for accumulator, ended in zip(after, stats.ended(), strict=True):
            accumulator.extend(ended)
        for kind in need:
            running[kind, field] = stats.column(kind)
    names = [kind if field is None else f"{kind}_{field}" for kind, field in aggregate.parts]
    arrays = [running[part] for part in aggregate.parts]
    return pa.RecordBatch.from_arrays([stretches.key_column, *arrays], ["key", *names]), after


class _FieldRun:
    """Running count, sum and extremes of one field, for the sorted records."""

    def __init__(
        self,
        stretches: KeyStretches,
        column: pa.Array | None,
        need: frozenset[str],
        start: list[list[Any] | None],
    ) -> None:
        self._stretches = stretches
        self._start = start
        self.count = self._counts(column)
        self.sum: Numbers | None = None
        self.low: Numbers | None = None
        self.high: Numbers | None = None
        if column is None or not need & {"mean", "sum", "min", "max"}:
            return
        if need & {"mean", "sum"}:
            self.sum = self._sums(self._values(column, 0))
        if need & {"min", "max"}:
            limit = np.inf if pa.types.is_floating(column.type) else np.iinfo(np.int64).max
            self.low = self._extremes(self._values(column, limit), MIN, limit, np.minimum)
            self.high = self._extremes(self._values(column, -limit), MAX, -limit, np.maximum)

    def _values(self, column: pa.Array, instead_of_null: float) -> Numbers:
        filled = column.fill_null(instead_of_null) if column.null_count else column
        values: Numbers = filled.to_numpy(zero_copy_only=False)[self._stretches.order]
        return values

    def _begin(self, stat: int, default: Any) -> Numbers:
        """What each key starts with."""
        values = [default if old is None or old[stat] is None else old[stat] for old in self._start]
        return np.array(values)

    def _counts(self, column: pa.Array | None) -> Longs:
        stretches = self._stretches
        begin = stretches.spread(self._begin(COUNT, 0))
        if column is None or not column.null_count:
            return begin + np.arange(1, len(begin) + 1) - stretches.spread(stretches.first)
        valid = column.is_valid().to_numpy(zero_copy_only=False)[stretches.order].astype(np.int64)
        return begin + self._cumulated(valid)

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
        best = values.astype(np.result_type(values.dtype, self._begin(stat, limit).dtype))
        best[first] = choose(best[first], self._begin(stat, limit))
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
        if kind == "count":
            return pa.array(stretches.unsorted(self.count))
        values = {"mean": self.sum, "sum": self.sum, "min": self.low, "max": self.high}[kind]
        assert values is not None
        counts = stretches.unsorted(self.count)
        numbers = stretches.unsorted(values)
        if kind == "mean":
            numbers = numbers / np.maximum(counts, 1)
        nothing = counts == 0
        return pa.array(numbers, mask=nothing if nothing.any() else None)

    def ended(self) -> list[list[Any]]:
        """[count, sum, minimum, maximum] of every key after the batch."""
        last = self._stretches.last
        counts = self.count[last].tolist()
        sums = [0] * len(counts) if self.sum is None else self.sum[last].tolist()
        lows = [None] * len(counts) if self.low is None else self.low[last].tolist()
        highs = [None] * len(counts) if self.high is None else self.high[last].tolist()
        return [
            [count, total, low, high] if count else [0, total, None, None]
            for count, total, low, high in zip(counts, sums, lows, highs, strict=True)
        ]
