"""Aggregates of Arrow columns by window and key, without a Python object per record.

Keys are dictionary-encoded. Every record gets the number of its time slice and the number of its key. A slice belongs
to one or several windows. Each pair (window, key) becomes a group number, and numpy folds the records into the
accumulators of the groups.

Floats are folded in the order of arrival into the accumulator of their window. The results are the same floats as for
rows. Counts, integer sums, minima and maxima do not depend on the order. These are folded by slice first, and the
slices are then folded into the windows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.taskmanager.operators.aggregate.stat_columns import (
    SAFE_SUM,
    FieldStats,
    NotColumnar,
    StatShape,
    number_columns,
    ordered,
    stats_of_records,
    unordered,
)
from penstock.taskmanager.operators.key_column import encoded_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from penstock.records.batch import ColumnBatch
    from penstock.records.fields import Field
    from penstock.windowing.aggregates import FieldAggregate

    Longs = npt.NDArray[np.int64]
    Table = dict[Any, Any]

_SPARSE = 4
"""If there are more possible groups per record than this number, groups are numbered by sorting, not with an array of
all groups.
"""
_FARTHEST = 1 << 62
"""Bound up to which times (ms) plus an offset fit into 64 bits."""


class Members(NamedTuple):
    """Records, or groups of records, to be folded. `stats` has an entry for each field, with a number for each member."""

    slice_of: Longs
    code_of: Longs
    stats: list[FieldStats]


class ColumnGroups:
    """The records of one batch by slice and key.

    Attributes:
        slices: start (ms) of every time slice that occurs.
        keys: every key that occurs.
    """

    def __init__(
        self,
        slices: list[int],
        slice_of: Longs,
        keys: pa.DictionaryArray,
        inputs: list[pa.Array | None],
        aggregate: FieldAggregate,
    ) -> None:
        self.slices = slices
        self.keys: list[Any] = keys.dictionary.to_pylist()
        self._slice_of = slice_of
        self._code_of: Longs = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._inputs = inputs
        self._aggregate = aggregate
        self._shape = StatShape.of(aggregate, inputs)

    def fold(self, tables: Sequence[Table], windows_of: Sequence[Sequence[int]]) -> list[tuple[int, list[Any]]]:
        """Add the records to the accumulators in `tables`.

        Args:
            tables: for every window, a dictionary of key -> accumulator, which is changed in place.
            windows_of: for every slice, the indexes of the tables of its windows. Records of slices without windows
                are left out.

        Returns: the index of every changed table, with the keys that changed in it.

        Raises:
            NotColumnar: the accumulators do not support columns. Nothing was changed.
        """
        widths = np.array([len(windows) for windows in windows_of])
        with np.errstate(all="ignore"):
            members = self._members(widths)
            if widths.max() > 1 and not self._depends_on_order():
                members = self._by_slice(members)
            window_of, members = _placed(members, windows_of, widths)
            groups, present = _numbered(window_of * len(self.keys) + members.code_of, len(tables) * len(self.keys))
            return self._fold_groups(tables, members.stats, groups, present)

    def _members(self, widths: Longs) -> Members:
        """Return the records of the slices that have windows."""
        count = len(self._code_of)
        stats = [
            stats_of_records(column, count, need)
            for column, need in zip(self._inputs, self._aggregate.needs, strict=True)
        ]
        members = Members(self._slice_of, self._code_of, stats)
        return members if widths.all() else _selected(members, np.flatnonzero(widths[self._slice_of] > 0))

    def _depends_on_order(self) -> bool:
        return any(
            need & {"sum", "mean"} and not integers
            for need, integers in zip(self._shape.needs, self._shape.integers, strict=True)
        )

    def _by_slice(self, members: Members) -> Members:
        width = len(self.keys)
        groups, present = _numbered(members.slice_of * width + members.code_of, len(self.slices) * width)
        fresh = self._shape.fresh_columns(len(present))
        stats = [_folded(start, part, groups) for start, part in zip(fresh, members.stats, strict=True)]
        return Members(present // width, present % width, stats)

    def _fold_groups(
        self, tables: Sequence[Table], stats: list[FieldStats], groups: Longs, present: Longs
    ) -> list[tuple[int, list[Any]]]:
        width = len(self.keys)
        at = [self.keys[code] for code in (present % width).tolist()]
        bounds = np.searchsorted(present, np.arange(len(tables) + 1) * width).tolist()
        spans = [(n, begin, end) for n, (begin, end) in enumerate(pairwise(bounds)) if begin < end]
        before = [old for n, begin, end in spans for old in map(tables[n].get, at[begin:end])]
        starts = self._starts(before)
        ends = [_folded(start, part, groups) for start, part in zip(starts, stats, strict=True)]
        accumulators = self._shape.accumulators_of(ends)
        changed = []
        for n, begin, end in spans:
            keys = at[begin:end]
            tables[n].update(zip(keys, accumulators[begin:end], strict=True))
            changed.append((n, keys))
        return changed

    def _starts(self, before: list[Any]) -> list[FieldStats]:
        """Return the initial stats of groups. `before` are their accumulators, or None for a new group."""
        if not any(before):
            return self._shape.fresh_columns(len(before))
        fresh = self._aggregate.create_accumulator()
        starts = self._shape.by_field([fresh if old is None else old for old in before])
        for start in starts:
            sums = start.sum
            if sums is not None and sums.dtype == np.int64 and max(-int(sums.min()), int(sums.max())) >= SAFE_SUM:
                raise NotColumnar
        return starts

    def records_of(self, slices: Sequence[int], batch: ColumnBatch) -> ColumnBatch:
        """Return the records of these slices."""
        wanted = np.isin(self._slice_of, [self.slices.index(low) for low in slices])
        return batch.take(np.flatnonzero(wanted))


def group_columns(
    batch: ColumnBatch,
    key_field: Field,
    times: Longs | None,
    now: int,
    slice_ms: int,
    offset: int,
    aggregate: FieldAggregate,
) -> ColumnGroups | None:
    """Return the records by slice and key, or None if their types must become Python objects.

    Args:
        times: event times in ms; None means that all records belong to `now`.
    """
    inputs = number_columns(batch, aggregate)
    column = batch.find(key_field)
    keys = None if inputs is None or column is None else encoded_keys(column)
    if inputs is None or keys is None:
        return None
    if times is None:
        slices, slice_of = [now - (now - offset) % slice_ms], np.zeros(len(keys), np.int64)
    elif times.min() > -_FARTHEST and times.max() < _FARTHEST:
        slices, slice_of = _slices(times, slice_ms, offset)
    else:
        return None
    return ColumnGroups(slices, slice_of, keys, inputs, aggregate)


def _slices(times: Longs, slice_ms: int, offset: int) -> tuple[list[int], Longs]:
    """Return the starts of the slices that occur, and for every record the index of its slice."""
    numbers = (times - offset) // slice_ms
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span == 1:
        return [first * slice_ms + offset], np.zeros(len(times), np.int64)
    present, index = np.unique(numbers, return_inverse=True)
    return (present * slice_ms + offset).tolist(), index


def _placed(members: Members, windows_of: Sequence[Sequence[int]], widths: Longs) -> tuple[Longs, Members]:
    """Return the window of every member. A member of several windows occurs once for each of them. The order is kept."""
    of_slice = np.concatenate([np.asarray(windows, np.int64) for windows in windows_of])
    begin = np.cumsum(widths) - widths
    if widths.max() <= 1:
        return of_slice[begin[members.slice_of]], members
    counts = widths[members.slice_of]
    which = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return of_slice[np.repeat(begin[members.slice_of], counts) + place], _selected(members, which)


def _selected(members: Members, places: Longs) -> Members:
    stats = [_selected_stats(part, places) for part in members.stats]
    return Members(members.slice_of[places], members.code_of[places], stats)


def _selected_stats(stats: FieldStats, places: Longs) -> FieldStats:
    records = stats.records[places]
    counted = records if stats.counted is stats.records else stats.counted[places]
    return FieldStats(records, counted, *(None if column is None else column[places] for column in stats[2:]))


def _numbered(groups: Longs, total: int) -> tuple[Longs, Longs]:
    """Number the groups from 0 without gaps, in order. Return the number of each entry and the group of every number."""
    if total > _SPARSE * len(groups):
        present, index = np.unique(groups, return_inverse=True)
        return index, present
    present = np.flatnonzero(np.bincount(groups, minlength=total))
    numbers = np.empty(total, np.int64)
    numbers[present] = np.arange(len(present))
    return numbers[groups], present


def _folded(start: FieldStats, members: FieldStats, groups: Longs) -> FieldStats:
    """Return the stats of every group after its members are added."""
    records = _added(start.records, members.records, groups)
    is_all = members.counted is members.records and start.counted is start.records
    return FieldStats(
        records,
        records if is_all else _added(start.counted, members.counted, groups),
        None if start.sum is None or members.sum is None else _added(start.sum, members.sum, groups),
        _chosen(np.minimum, start.low, members.low, groups),
        _chosen(np.maximum, start.high, members.high, groups),
    )


def _added(start: npt.NDArray[Any], numbers: npt.NDArray[Any], groups: Longs) -> npt.NDArray[Any]:
    """Add the numbers one by one, in order."""
    if start.dtype == np.float64:  # bincount is faster than add.at, and starts with 0.0
        size = len(start)
        weights = np.concatenate((start, numbers))
        return np.bincount(np.concatenate((np.arange(size), groups)), weights, size)
    sums = start.copy()
    np.add.at(sums, groups, numbers)
    return sums


def _chosen(
    choose: np.ufunc, start: npt.NDArray[Any] | None, numbers: npt.NDArray[Any] | None, groups: Longs
) -> npt.NDArray[Any] | None:
    if start is None or numbers is None:
        return None
    best = ordered(start).copy()
    choose.at(best, groups, ordered(numbers))
    return unordered(best, start.dtype)
