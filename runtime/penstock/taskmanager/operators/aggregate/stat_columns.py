"""The accumulators of `FieldAggregate` as numpy columns, and back: `Stats` of one field for many keys.

The columns have the type int64 or float64. Other accumulators raise `NotColumnar`, because their results would differ
from those of rows. Examples are a sum beyond 64 bits, a Decimal, and an integer sum followed by a float column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.windowing.aggregates import FieldAggregate, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from penstock.records.batch import ColumnBatch
    from penstock.records.fields import Field

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

SAFE_SUM = 1 << 62
"""Bound below which two sums can be added in 64 bits."""
_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
_SUMS, _LOWS, _HIGHS = frozenset({"mean", "sum"}), frozenset({"min"}), frozenset({"max"})


class NotColumnar(Exception):
    """An accumulator with a value that columns cannot continue exactly. The batch must be processed as Python objects."""


class FieldStats(NamedTuple):
    """`Stats` of many keys, or of many records. A column that is not needed is None.

    If no value is counted, `sum` is 0, and `low` and `high` are `no_low` and `no_high`.
    """

    records: Longs
    counted: Longs
    sum: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None


def no_low(*, integers: bool) -> float:
    """Return the value that stands for the minimum of no values. No value is above it in the order of `penstock.records.order`."""
    return _HIGHEST if integers else float("nan")


def no_high(*, integers: bool) -> float:
    """Return the value that stands for the maximum of no values. No value is below it."""
    return _LOWEST if integers else float("-inf")


def ordered(numbers: Numbers) -> Longs:
    """Return integers that sort in the order of `penstock.records.order`, for numbers of int64 or float64.

    >>> ordered(np.array([-0.0, 0.0, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3]
    """
    if numbers.dtype == np.int64:
        return numbers
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    return bits ^ ((bits >> 63) & _HIGHEST)


def unordered(keys: Longs, dtype: np.dtype[Any]) -> Numbers:
    """Return the numbers from which `ordered` made these integers."""
    return keys if dtype == np.int64 else (keys ^ ((keys >> 63) & _HIGHEST)).view(np.float64)


def is_integer(column: pa.Array | None) -> bool:
    return column is not None and bool(pa.types.is_integer(column.type))


def number_columns(batch: ColumnBatch, aggregate: FieldAggregate) -> list[pa.Array | None] | None:
    """Return every field of the aggregate as a column of float64 or int64. A field that is None has no column.

    Return None if a field has numbers of another type, or numbers whose sum may exceed 64 bits.
    """
    columns: list[pa.Array | None] = []
    for field, need in zip(aggregate.fields, aggregate.needs, strict=True):
        column = None if field is None else _number_column(batch, field, need)
        if column is None and field is not None:
            return None
        columns.append(column)
    return columns


def _number_column(batch: ColumnBatch, field: Field, need: frozenset[str]) -> pa.Array | None:
    column = batch.find(field)
    if column is None:
        return None
    if pa.types.is_floating(column.type):
        return column.cast(pa.float64())
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        longs = column.cast(pa.int64())
        return longs if not need & _SUMS or _sums_fit(longs) else None
    return None


def _sums_fit(longs: pa.Array) -> bool:
    """Return whether no sum of the numbers can come near the bounds of 64 bits. At these bounds, numpy wraps around."""
    bounds = pc.min_max(longs).as_py()
    return bounds["min"] is None or max(-bounds["min"], bounds["max"]) * len(longs) < SAFE_SUM


def stats_of_records(column: pa.Array | None, count: int, need: frozenset[str]) -> FieldStats:
    """Return the stats of each single record of a batch.

    Args:
        column: from `number_columns`.
        count: number of records.
    """
    ones = np.ones(count, np.int64)
    if column is None:
        return FieldStats(ones, ones)
    integers = is_integer(column)
    counted = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) if column.null_count else ones

    def values(instead_of_null: float) -> Numbers:
        filled = column.fill_null(instead_of_null) if column.null_count else column
        numbers: Numbers = filled.to_numpy(zero_copy_only=False)
        return numbers

    return FieldStats(
        ones,
        counted,
        values(0) if need & _SUMS else None,
        values(no_low(integers=integers)) if need & _LOWS else None,
        values(no_high(integers=integers)) if need & _HIGHS else None,
    )


def stats_of(accumulators: Sequence[Stats], need: frozenset[str], *, integers: bool) -> FieldStats:
    """Return the accumulators of one field as columns, limited to the stats that the aggregate needs.

    Args:
        integers: whether the columns have the type int64 instead of float64.

    Raises:
        NotColumnar: `as_stats` would not return equal accumulators of the same types.
    """
    kind: type = int if integers else float
    try:
        records, counts, sums, lows, highs = zip(*accumulators, strict=True)
        every = 0 not in counts

        def column(values: Sequence[Any], nothing: float) -> Numbers:
            if not every:
                values = [value if count else nothing for value, count in zip(values, counts, strict=True)]
            return _exact(values, kind)

        return FieldStats(
            _exact(records, int),
            _exact(counts, int),
            column(sums, kind(0)) if need & _SUMS else None,
            column(lows, no_low(integers=integers)) if need & _LOWS else None,
            column(highs, no_high(integers=integers)) if need & _HIGHS else None,
        )
    except (TypeError, ValueError, OverflowError):
        raise NotColumnar from None  # a number beyond 64 bits, or accumulators of another program


def _exact(values: Sequence[Any], kind: type) -> Numbers:
    if set(map(type, values)) != {kind}:
        raise TypeError(f"not all values are {kind.__name__}")
    return np.array(values, np.int64 if kind is int else np.float64)


def as_stats(columns: FieldStats) -> list[Stats]:
    """Return one tuple of stats for each key."""
    counts = columns.counted.tolist()
    every = 0 not in counts

    def values(column: Numbers | None, nothing: Any) -> Iterable[Any]:
        if column is None:
            return repeat(nothing)
        numbers: list[Any] = column.tolist()
        if every:
            return numbers
        return [number if count else nothing for number, count in zip(numbers, counts, strict=True)]

    return list(
        zip(
            columns.records.tolist(),
            counts,
            values(columns.sum, 0),
            values(columns.low, None),
            values(columns.high, None),
            strict=False,
        )
    )


@dataclass(frozen=True)
class StatShape:
    """The `AccumulatorShape` of a field aggregate: for each field the columns of `FieldStats` that it needs.

    Attributes:
        needs: aggregates that are needed for each field.
        integers: whether each field's numbers are integers.
    """

    needs: tuple[frozenset[str], ...]
    integers: tuple[bool, ...]

    @staticmethod
    def of(aggregate: FieldAggregate, inputs: Sequence[pa.Array | None]) -> StatShape:
        return StatShape(tuple(aggregate.needs), tuple(map(is_integer, inputs)))

    @property
    def is_flat(self) -> bool:
        return len(self.needs) == 1

    @cached_property
    def fresh(self) -> list[float]:
        values: list[float] = []
        for need, integers in zip(self.needs, self.integers, strict=True):
            numbers = (0, 0, 0 if integers else 0.0, no_low(integers=integers), no_high(integers=integers))
            wanted = (True, True, need & _SUMS, need & _LOWS, need & _HIGHS)
            values.extend(number for number, is_wanted in zip(numbers, wanted, strict=True) if is_wanted)
        return values

    def fresh_columns(self, count: int) -> list[FieldStats]:
        """Return the stats of `count` keys that have no accumulator yet."""
        return self.split([np.full(count, value) for value in self.fresh])

    def split(self, columns: Sequence[Numbers]) -> list[FieldStats]:
        """Group the columns by field."""
        remaining = iter(columns)
        return [
            FieldStats(
                next(remaining),
                next(remaining),
                next(remaining) if need & _SUMS else None,
                next(remaining) if need & _LOWS else None,
                next(remaining) if need & _HIGHS else None,
            )
            for need in self.needs
        ]

    def joined(self, by_field: Sequence[FieldStats]) -> list[Numbers]:
        return [column for stats in by_field for column in stats if column is not None]

    def by_field(self, accumulators: Sequence[Any]) -> list[FieldStats]:
        """Return the accumulators of many keys as columns.

        Raises:
            NotColumnar: a value has another type.
        """
        parts = [accumulators] if self.is_flat else _by_position(accumulators, len(self.needs))
        return [
            stats_of(stats, need, integers=integers)
            for stats, need, integers in zip(parts, self.needs, self.integers, strict=True)
        ]

    def accumulators_of(self, by_field: Sequence[FieldStats]) -> list[Any]:
        """Return the accumulator of every key from the columns of each field."""
        parts = list(map(as_stats, by_field))
        return parts[0] if self.is_flat else list(zip(*parts, strict=True))

    def accumulators(self, columns: Sequence[Numbers]) -> list[Any]:
        return self.accumulators_of(self.split(columns))

    def columns(self, accumulators: Sequence[Any]) -> list[Numbers] | None:
        try:
            return self.joined(self.by_field(accumulators))
        except NotColumnar:
            return None


def _by_position(accumulators: Sequence[Any], count: int) -> list[Any]:
    try:
        parts = list(zip(*accumulators, strict=True))
    except (TypeError, ValueError):
        raise NotColumnar from None
    if len(parts) != count:
        raise NotColumnar
    return parts
