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

from penstock.taskmanager.operators.aggregate.stat_columns import FieldStats, NotInColumns, bound_of, is_integer
from penstock.taskmanager.operators.window.columns import SAFE_SUM, number_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.records.batch import ColumnBatch
    from penstock.records.fields import Field
    from penstock.windowing.aggregates import FieldAggregate

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

_SMALL = 1 << 16
"""Up to so many keys numpy sorts by radix."""


class KeyStretches:
    """The records of a batch, sorted by key.

    Attributes:
        keys: every key that occurs, in the order of the stretches.
        order: position in the batch of every sorted record.
        first: where each stretch begins among the sorted records.
    """

    def __init__(self, key_column: pa.Array, inputs: list[pa.Array | None], aggregate: FieldAggregate) -> None:
        # A dictionary of the user's may name a key twice.
        plain = key_column.dictionary_decode() if pa.types.is_dictionary(key_column.type) else key_column
        encoded = plain.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        self.key_column = key_column
        self.inputs = inputs
        self.aggregate = aggregate
        if len(encoded.dictionary) < _SMALL:
            codes = codes.astype(np.uint16)
        self.order: Longs = np.argsort(codes, kind="stable")
        ordered = codes[self.order]
        self.first: Longs = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        self.keys: pa.Array = encoded.dictionary.take(pa.array(ordered[self.first]))
        self.lengths: Longs = np.diff(self.first, append=len(codes))
        self.last: Longs = self.first + self.lengths - 1

    @staticmethod
    def of(batch: ColumnBatch, key_field: Field, aggregate: FieldAggregate) -> KeyStretches | None:
        """None if the types need the way through Python objects."""
        inputs = [None if field is None else number_column(batch, field) for field in aggregate.fields]
        if any(column is None and field is not None for column, field in zip(inputs, aggregate.fields, strict=True)):
            return None
        keys = batch.find(key_field)
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


def running_aggregates(stretches: KeyStretches, starts: list[FieldStats]) -> tuple[pa.RecordBatch, list[FieldStats]]:
    """The key and the aggregates of every record in the order of the batch, and what each key ends with.

    Args:
        starts: for each field what each of `stretches.keys` starts with.

    Raises:
        NotInColumns: nothing was changed.
    """
    aggregate = stretches.aggregate
    runs = {
        field: _FieldRun(stretches, column, need, start)
        for start, field, need, column in zip(starts, aggregate.fields, aggregate.needs, stretches.inputs, strict=True)
    }
    names = [kind if field is None else f"{kind}_{field}" for kind, field in aggregate.parts]
    arrays = [
        runs[aggregate.fields[0]].column("records") if field is None else runs[field].column(kind)
        for kind, field in aggregate.parts
    ]
    columns = pa.RecordBatch.from_arrays([stretches.key_column, *arrays], ["key", *names])
    return columns, [run.ended() for run in runs.values()]


class _FieldRun:
    """Running stats of one field, for the sorted records.

    Args:
        start: the stats of every key before the batch.
    """

    def __init__(
        self, stretches: KeyStretches, column: pa.Array | None, need: frozenset[str], start: FieldStats
    ) -> None:
        self._stretches = stretches
        self._start = start
        self.records = self._numbered()
        self.counted = self._counts(column)
        self.sum, self.low, self.high = start.sum, start.low, start.high
        if column is None:
            return
        bound = bound_of(is_integer(column))
        if start.sum is not None:
            self.sum = self._sums(self._values(column, 0), start.sum)
        if start.low is not None:
            self.low = self._extremes(self._values(column, bound), start.low, np.minimum)
        if start.high is not None:
            self.high = self._extremes(self._values(column, -bound), start.high, np.maximum)

    def _values(self, column: pa.Array, instead_of_null: float) -> Numbers:
        filled = column.fill_null(instead_of_null) if column.null_count else column
        values: Numbers = filled.to_numpy(zero_copy_only=False)[self._stretches.order]
        return values

    def _numbered(self) -> Longs:
        """Which record of its key each one is."""
        spread, first = self._stretches.spread, self._stretches.first
        begin = self._start.records + 1 - first
        return spread(begin) + np.arange(len(self._stretches.order))

    def _counts(self, column: pa.Array | None) -> Longs:
        stretches = self._stretches
        if column is None:
            return stretches.spread(self._start.counted)
        if not column.null_count:
            return self.records + stretches.spread(self._start.counted - self._start.records)
        valid = column.is_valid().to_numpy(zero_copy_only=False)[stretches.order].astype(np.int64)
        return stretches.spread(self._start.counted) + self._cumulated(valid)

    def _cumulated(self, values: Numbers) -> Numbers:
        """Sums within each stretch, up to and with each record."""
        total = np.cumsum(values)
        first = self._stretches.first
        return total - self._stretches.spread(total[first] - values[first])

    def _sums(self, values: Numbers, begin: Numbers) -> Numbers:
        if begin.dtype == values.dtype == np.int64 and max(-int(begin.min()), int(begin.max())) >= SAFE_SUM:
            raise NotInColumns
        return self._stretches.spread(begin) + self._cumulated(values)

    def _extremes(self, values: Numbers, begin: Numbers, choose: np.ufunc) -> Numbers:
        stretches = self._stretches
        first, longest = stretches.first, int(stretches.lengths.max())
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
            return pa.array(stretches.unsorted(self.records if kind == "records" else self.counted))
        values = {"mean": self.sum, "sum": self.sum, "min": self.low, "max": self.high}[kind]
        assert values is not None
        counts = stretches.unsorted(self.counted)
        numbers = stretches.unsorted(values)
        if kind == "mean":
            numbers = numbers / np.maximum(counts, 1)
        nothing = counts == 0
        return pa.array(numbers, mask=nothing if nothing.any() else None)

    def ended(self) -> FieldStats:
        """What every key ends with."""
        last = self._stretches.last
        numbers = (None if column is None else column[last] for column in (self.sum, self.low, self.high))
        return FieldStats(self.records[last], self.counted[last], *numbers)
