"""Running aggregates over Arrow columns: the aggregates of each record's key up to the record, without a loop per
record.

A batch is sorted by key. The sort is stable, so the records of a key keep their order. In the sorted arrays each key is
one *stretch*.

Counts and integer sums are cumulative over all stretches, minus the total before the stretch. This is exact.

Float sums would not be exact: one NaN or one large number would change the sums of all later keys. So floats are added
within each stretch, in order, starting with the sum of the key so far. The results are the same floats as for rows.
Minima and maxima are computed in the same way.

All short stretches are processed at the same time: the first record of each stretch, then the second record of each
stretch, and so on. Long stretches of similar length are the rows of a matrix.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.taskmanager.operators.aggregate.stat_columns import (
    SAFE_SUM,
    FieldStats,
    NotColumnar,
    number_columns,
    ordered,
    stats_of_records,
    unordered,
)
from penstock.taskmanager.operators.key_column import encoded_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.records.batch import ColumnBatch
    from penstock.records.fields import Field
    from penstock.windowing.aggregates import FieldAggregate

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

_SMALL = 1 << 16
"""Maximum number of keys for which numpy uses radix sort."""
_SHORT = 16
"""Maximum length of a short stretch. All short stretches are processed at the same time, record by record."""
_EXACT = 1 << 53
"""Bound up to which a float represents every integer exactly."""


class KeyStretches:
    """The records of a batch, sorted by key.

    Attributes:
        keys: every key that occurs, in the order of the stretches.
        order: position in the batch of every sorted record.
        first: index of the first sorted record of each stretch.
        lengths: number of records of each stretch.
    """

    def __init__(
        self,
        key_column: pa.Array,
        encoded: pa.DictionaryArray,
        inputs: list[pa.Array | None],
        aggregate: FieldAggregate,
    ) -> None:
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        self.key_column = key_column
        self.inputs = inputs
        self.aggregate = aggregate
        if len(encoded.dictionary) < _SMALL:
            codes = codes.astype(np.uint16)
        self.order: Longs = np.argsort(codes, kind="stable")
        in_order = codes[self.order]
        self.first: Longs = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
        self.keys: pa.Array = encoded.dictionary.take(pa.array(in_order[self.first]))
        self.lengths: Longs = np.diff(self.first, append=len(codes))
        self.last: Longs = self.first + self.lengths - 1

    @staticmethod
    def of(batch: ColumnBatch, key_field: Field, aggregate: FieldAggregate) -> KeyStretches | None:
        """Return the stretches of a batch, or None if the types must become Python objects."""
        inputs = number_columns(batch, aggregate)
        keys = batch.find(key_field)
        encoded = None if inputs is None or keys is None else encoded_keys(keys)
        return None if inputs is None or encoded is None else KeyStretches(keys, encoded, inputs, aggregate)

    def spread(self, per_stretch: Numbers) -> Numbers:
        """Repeat the value of each stretch for each of its sorted records."""
        return np.repeat(per_stretch, self.lengths)

    def unsorted(self, values: Numbers) -> Numbers:
        """Return the values of the sorted records in the order of the batch."""
        result = np.empty_like(values)
        result[self.order] = values
        return result

    def cumulated(self, values: Longs, begin: Longs) -> Longs:
        """Return the sums within each stretch, starting with `begin`, up to and including each record.

        The sums are exact only for integers.
        """
        total = np.cumsum(values)
        result: Longs = total - self.spread(total[self.first] - values[self.first] - begin)
        return result

    def folded(self, fold: np.ufunc, values: Numbers, begin: Numbers) -> Numbers:
        """Apply `fold` within each stretch, in order, starting with `begin`, up to and including each record."""
        result = np.empty_like(values)
        stretches, rounds = self._rounds
        sofar = begin[stretches]
        for positions in rounds:
            sofar = result[positions] = fold(sofar[: len(positions)], values[positions])
        for stretches, positions, is_filled in self._matrices:
            matrix = np.empty((len(stretches), positions.shape[1] + 1), values.dtype)
            matrix[:, 0] = begin[stretches]
            matrix[:, 1:] = values[positions]
            fold.accumulate(matrix, axis=1, out=matrix)
            result[positions[is_filled]] = matrix[:, 1:][is_filled]
        return result

    @cached_property
    def _rounds(self) -> tuple[Longs, list[Longs]]:
        """Return the short stretches, the longest first, with the positions of their first records, their second
        records and so on."""
        short = np.flatnonzero(self.lengths <= _SHORT)
        stretches = short[np.argsort(-self.lengths[short], kind="stable")]
        first, lengths = self.first[stretches], self.lengths[stretches]
        longest = int(lengths[0]) if len(lengths) else 0
        counts = np.searchsorted(-lengths, -np.arange(longest), side="left").tolist()
        return stretches, [first[:count] + place for place, count in enumerate(counts)]

    @cached_property
    def _matrices(self) -> list[tuple[Longs, Longs, npt.NDArray[np.bool_]]]:
        """Return the long stretches by length: their indexes, the position of each cell's record, and which cells have
        a record.

        At least half of the cells of a matrix have a record. The other cells, at the end of a row, have the position of
        any record.
        """
        matrices = []
        width, last, longest = 2 * _SHORT, len(self.order) - 1, int(self.lengths.max())
        while width < 2 * longest:
            stretches = np.flatnonzero((self.lengths > width // 2) & (self.lengths <= width))
            if len(stretches):
                places = np.arange(width)
                positions = np.minimum(self.first[stretches][:, None] + places, last)
                matrices.append((stretches, positions, places < self.lengths[stretches][:, None]))
            width *= 2
        return matrices


def running_aggregates(stretches: KeyStretches, starts: list[FieldStats]) -> tuple[pa.RecordBatch, list[FieldStats]]:
    """Return the key and the aggregates of every record in the order of the batch, and the final stats of each key.

    Args:
        starts: for each field, the initial stats of each of `stretches.keys`.

    Raises:
        NotColumnar: the numbers are too large for columns. Nothing was changed.
    """
    aggregate = stretches.aggregate
    with np.errstate(all="ignore"):
        runs = {
            field: _FieldRun(stretches, column, need, start)
            for start, field, need, column in zip(
                starts, aggregate.fields, aggregate.needs, stretches.inputs, strict=True
            )
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
        order = stretches.order
        record = stats_of_records(column, len(order), need)
        self.records = self._numbered(start.records)
        if record.counted is record.records:
            self.counted = self._numbered(start.counted)
        else:
            self.counted = stretches.cumulated(record.counted[order], start.counted)
        self.sum, self.low, self.high = start.sum, start.low, start.high
        if record.sum is not None and start.sum is not None:
            self.sum = self._sums(record.sum[order], start.sum)
        if record.low is not None and start.low is not None:
            self.low = self._extremes(np.minimum, record.low[order], start.low)
        if record.high is not None and start.high is not None:
            self.high = self._extremes(np.maximum, record.high[order], start.high)

    def _numbered(self, begin: Longs) -> Longs:
        """Return `begin` plus the number of records of the key up to and including each record."""
        spread, first = self._stretches.spread, self._stretches.first
        return spread(begin + 1 - first) + np.arange(len(self._stretches.order))

    def _sums(self, values: Numbers, begin: Numbers) -> Numbers:
        if values.dtype == np.float64:
            return self._stretches.folded(np.add, values, begin)
        if max(-int(begin.min()), int(begin.max())) >= SAFE_SUM:
            raise NotColumnar
        return self._stretches.cumulated(values, begin)

    def _extremes(self, choose: np.ufunc, values: Numbers, begin: Numbers) -> Numbers:
        return unordered(self._stretches.folded(choose, ordered(values), ordered(begin)), values.dtype)

    def column(self, kind: str) -> pa.Array:
        """Return the aggregate of every record in the order of the batch. It is null if no value has been counted yet."""
        stretches = self._stretches
        if kind in ("records", "count"):
            return pa.array(stretches.unsorted(self.records if kind == "records" else self.counted))
        values = {"mean": self.sum, "sum": self.sum, "min": self.low, "max": self.high}[kind]
        assert values is not None
        counts = stretches.unsorted(self.counted)
        numbers = stretches.unsorted(values)
        if kind == "mean":
            numbers = _quotients(numbers, np.maximum(counts, 1))
        nothing = counts == 0
        return pa.array(numbers, mask=nothing if nothing.any() else None)

    def ended(self) -> FieldStats:
        """Return the final stats of every key."""
        last = self._stretches.last
        numbers = (None if column is None else column[last] for column in (self.sum, self.low, self.high))
        return FieldStats(self.records[last], self.counted[last], *numbers)


def _quotients(sums: Numbers, counts: Longs) -> Numbers:
    """Divide with one rounding, as Python does. numpy would first round an integer that no float represents."""
    if sums.dtype == np.int64 and max(-int(sums.min()), int(sums.max())) > _EXACT:
        pairs = zip(sums.tolist(), counts.tolist(), strict=True)
        return np.array([total / count for total, count in pairs])
    return sums / counts
