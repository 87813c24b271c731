"""Aggregating Arrow columns by time slice and key, without a Python object per record.

Keys are dictionary-encoded, (slice, key) becomes a group number, and numpy accumulates each field by group. What comes out
is one accumulator of `FieldAggregate` per group, to be merged into the windows.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from penstock.records.batch import ColumnBatch
    from penstock.records.fields import Field
    from penstock.windowing.aggregates import FieldAggregate, Stats

    Longs = npt.NDArray[np.int64]

SAFE_SUM = 1 << 62
"""Two sums below it can be added in 64 bits."""
_SPARSE = 4
"""Above this many possible groups per record, only the groups that occur are numbered."""


class ColumnGroups:
    """The records of one batch by slice and key.

    Attributes:
        slices: start (ms) of every time slice that occurs.
        keys: every key that occurs.
    """

    def __init__(
        self, slices: list[int], keys: list[Any], slice_of: Longs, code_of: Longs, fields: FieldAggregate
    ) -> None:
        self.slices = slices
        self.keys = keys
        self._slice_of = slice_of
        self._code_of = code_of
        self._fields = fields
        self.inputs: list[pa.Array | None] = []

    def accumulators(self, skip: Sequence[int]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
        """(index of the slice, index of the key, accumulator) of every group; without the slices in `skip`."""
        groups = self._slice_of * len(self.keys) + self._code_of
        keep = None
        if skip:
            keep = ~np.isin(self._slice_of, [self.slices.index(low) for low in skip])
            groups = groups[keep]
        total = len(self.slices) * len(self.keys)
        if total > _SPARSE * len(groups):
            present, groups = np.unique(groups, return_inverse=True)
            counts = np.bincount(groups, minlength=len(present))
            occupied = np.arange(len(present))
        else:
            counts = np.bincount(groups, minlength=total)
            present = occupied = np.flatnonzero(counts)
        by_field = []
        for column, need in zip(self.inputs, self._fields.needs, strict=True):
            kept = column if column is None or keep is None else column.filter(pa.array(keep))
            by_field.append(_stats(kept, groups, counts, need, occupied))
        accumulators = by_field[0] if len(by_field) == 1 else list(zip(*by_field, strict=True))
        width = len(self.keys)
        for group, accumulator in zip(present.tolist(), accumulators, strict=True):
            yield group // width, group % width, accumulator

    def records_of(self, slices: Sequence[int], batch: ColumnBatch) -> ColumnBatch:
        """The records of these slices."""
        wanted = np.isin(self._slice_of, [self.slices.index(low) for low in slices])
        return batch.take(np.flatnonzero(wanted))


def group_columns(
    batch: ColumnBatch,
    key_field: Field,
    times: Longs | None,
    now: int,
    slice_ms: int,
    offset: int,
    fields: FieldAggregate,
) -> ColumnGroups | None:
    """The records by slice and key; None if their types need the way through Python objects.

    Args:
        times: event times in ms; None: all records belong to `now`.
    """
    inputs = [None if field is None else number_column(batch, field) for field in fields.fields]
    if any(column is None and field is not None for column, field in zip(inputs, fields.fields, strict=True)):
        return None
    keys = batch.find(key_field)
    if keys is None or keys.null_count or pa.types.is_nested(keys.type):
        return None
    encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if times is None:
        slices, slice_of = [now - (now - offset) % slice_ms], np.zeros(len(codes), np.int64)
    else:
        slices, slice_of = _slices(times, slice_ms, offset)
    groups = ColumnGroups(slices, encoded.dictionary.to_pylist(), slice_of, codes, fields)
    groups.inputs = inputs
    return groups


def _slices(times: Longs, slice_ms: int, offset: int) -> tuple[list[int], Longs]:
    """Starts of the slices that occur, and the index of its slice for every record."""
    numbers = (times - offset) // slice_ms
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span == 1:
        return [first * slice_ms + offset], np.zeros(len(times), np.int64)
    present, index = np.unique(numbers, return_inverse=True)
    return (present * slice_ms + offset).tolist(), index


def number_column(batch: ColumnBatch, field: Field) -> pa.Array | None:
    """The column as float64 or int64; None if it holds no numbers that these can carry, or whose sum they cannot."""
    column = batch.find(field)
    if column is None:
        return None
    if pa.types.is_floating(column.type):
        return column.cast(pa.float64())
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        longs = column.cast(pa.int64())
        return longs if _sums_fit(longs) else None
    return None


def _sums_fit(longs: pa.Array) -> bool:
    """Whether no sum of the numbers comes near the bounds of 64 bits, where numpy would go on at the other end."""
    bounds = pc.min_max(longs).as_py()
    return bounds["min"] is None or max(-bounds["min"], bounds["max"]) * len(longs) < SAFE_SUM


def _stats(column: pa.Array | None, groups: Longs, counts: Longs, need: frozenset[str], occupied: Longs) -> list[Stats]:
    """The stats of the groups `occupied`, as far as needed; what is not needed is 0 or None."""
    size = len(counts)
    records = counts[occupied].tolist()
    valid = records
    sums: Iterable[Any] = repeat(0)
    lows: Iterable[Any] = repeat(None)
    highs: Iterable[Any] = repeat(None)
    if column is not None:
        if column.null_count:
            groups = groups[column.is_valid().to_numpy(zero_copy_only=False)]
            column = column.drop_null()
            counts = np.bincount(groups, minlength=size)
            valid = counts[occupied].tolist()
        values = column.to_numpy(zero_copy_only=False)
        if need & {"mean", "sum"}:
            sums = _sums(values, groups, size)[occupied].tolist()
        limit = np.inf if values.dtype == np.float64 else np.iinfo(np.int64).max
        if "min" in need:
            lows = _extremes(np.minimum, limit, values, groups, counts)[occupied].tolist()
        if "max" in need:
            highs = _extremes(np.maximum, -limit, values, groups, counts)[occupied].tolist()
    return list(zip(records, valid, sums, lows, highs, strict=False))


def _sums(values: npt.NDArray[Any], groups: Longs, size: int) -> npt.NDArray[Any]:
    if values.dtype == np.float64:
        return np.bincount(groups, weights=values, minlength=size)
    sums = np.zeros(size, np.int64)
    np.add.at(sums, groups, values)
    return sums


def _extremes(
    choose: np.ufunc, limit: float, values: npt.NDArray[Any], groups: Longs, counts: Longs
) -> npt.NDArray[Any]:
    """The extreme of every group, None for an empty one."""
    extremes = np.full(len(counts), limit, values.dtype)
    choose.at(extremes, groups, values)
    if not counts.all():
        extremes = extremes.astype(object)
        extremes[counts == 0] = None
    return extremes
