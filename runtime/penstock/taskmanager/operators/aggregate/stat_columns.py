"""The accumulators of `FieldAggregate` as numpy columns, and back: `Stats` of one field for many keys at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.windowing.aggregates import COUNT, MAX, MIN, RECORDS, SUM, FieldAggregate, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]

_EXACT = 1 << 53
"""Above it a float stands for several integers."""
_SUMS, _LOWS, _HIGHS = frozenset({"mean", "sum"}), frozenset({"min"}), frozenset({"max"})


class NotInColumns(Exception):
    """An accumulator holds a number that 64 bits cannot go on from: the batch must be processed as Python objects."""


class FieldStats(NamedTuple):
    """`Stats` of many keys, or of many records. None: not needed; where nothing is counted `low` and `high` are bounds."""

    records: Longs
    counted: Longs
    sum: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None


def bound_of(is_integer: bool) -> float:
    """Above all numbers of a column."""
    return int(np.iinfo(np.int64).max) if is_integer else float("inf")


def is_integer(column: pa.Array | None) -> bool:
    return column is not None and bool(pa.types.is_integer(column.type))


def stats_of(before: Sequence[Stats], need: frozenset[str], *, integers: bool) -> FieldStats:
    """What a batch can go on from.

    Args:
        integers: whether the batch's numbers are.

    Raises:
        NotInColumns: there are numbers that are not in 64 bits, or floats too large to add integers to.
    """
    by_stat = list(zip(*before, strict=True))
    bound = bound_of(integers)

    def column(stat: int, default: float) -> Numbers:
        values = by_stat[stat]
        numbers = np.array([default if value is None else value for value in values] if None in values else values)
        is_long = numbers.dtype == np.int64
        if not is_long and (numbers.dtype != np.float64 or (integers and np.abs(numbers).max() >= _EXACT)):
            raise NotInColumns
        return numbers

    return FieldStats(
        column(RECORDS, 0),
        column(COUNT, 0),
        column(SUM, 0) if need & _SUMS else None,
        column(MIN, bound) if need & _LOWS else None,
        column(MAX, -bound) if need & _HIGHS else None,
    )


def as_stats(columns: FieldStats, before: Sequence[Stats] | None = None) -> list[Stats]:
    """One tuple for each key.

    Args:
        before: has what is not needed.
    """
    counts = columns.counted.tolist()

    def values(column: Numbers | None, stat: int, nothing: Any) -> Iterable[Any]:
        if column is None:
            return repeat(nothing) if before is None else [stats[stat] for stats in before]
        numbers: list[Any] = column.tolist()
        if stat == SUM or 0 not in counts:
            return numbers
        return [number if count else None for number, count in zip(numbers, counts, strict=True)]

    sums, lows, highs = values(columns.sum, SUM, 0), values(columns.low, MIN, None), values(columns.high, MAX, None)
    return list(zip(columns.records.tolist(), counts, sums, lows, highs, strict=False))


@dataclass(frozen=True)
class StatShape:
    """`AccumulatorShape` of a field aggregate: for each field the columns of `FieldStats` that it needs.

    Attributes:
        needs: aggregates needed of each field.
        integers: whether each field's numbers are.
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
            bound = bound_of(integers)
            wanted = (True, True, need & _SUMS, need & _LOWS, need & _HIGHS)
            numbers = (0, 0, 0 if integers else 0.0, bound, -bound)
            values.extend(number for number, is_wanted in zip(numbers, wanted, strict=True) if is_wanted)
        return values

    def split(self, columns: Sequence[Numbers]) -> list[FieldStats]:
        """The columns by field."""
        left = iter(columns)
        return [
            FieldStats(
                next(left),
                next(left),
                next(left) if need & _SUMS else None,
                next(left) if need & _LOWS else None,
                next(left) if need & _HIGHS else None,
            )
            for need in self.needs
        ]

    def joined(self, by_field: Sequence[FieldStats]) -> list[Numbers]:
        return [column for stats in by_field for column in stats if column is not None]

    def accumulators(self, columns: Sequence[Numbers]) -> list[Any]:
        by_field = list(map(as_stats, self.split(columns)))
        return by_field[0] if len(by_field) == 1 else list(zip(*by_field, strict=True))

    def columns(self, accumulators: Sequence[Any]) -> list[Numbers] | None:
        by_field = [accumulators] if len(self.needs) == 1 else list(zip(*accumulators, strict=True))
        columns: list[Numbers] = []
        try:
            for stats, need, integers in zip(by_field, self.needs, self.integers, strict=True):
                columns += _exact_columns(stats, need, integers=integers)
        except (TypeError, ValueError, OverflowError):
            return None  # another program's accumulators, or a number beyond 64 bits
        return columns


def _exact_columns(stats: Sequence[Stats], need: frozenset[str], *, integers: bool) -> list[Numbers]:
    """
    Raises:
        TypeError, ValueError, OverflowError: what `as_stats` would make of them is not the same.
    """
    records, counts, sums, lows, highs = zip(*stats, strict=True)
    kind, bound = (int, bound_of(True)) if integers else (float, bound_of(False))
    columns = [_exact(records, int), _exact(counts, int)]
    if need & _SUMS:
        columns.append(
            _exact([total if count else kind(total) for total, count in zip(sums, counts, strict=True)], kind)
        )
    elif set(map(type, sums)) != {int} or any(sums):
        raise ValueError("sums that are not needed")
    for values, wanted, nothing in ((lows, need & _LOWS, bound), (highs, need & _HIGHS, -bound)):
        if wanted:
            if any((value is None) != (count == 0) for value, count in zip(values, counts, strict=True)):
                raise ValueError("an extreme of nothing, or none of something")
            columns.append(_exact([nothing if value is None else value for value in values], kind))
        elif set(values) != {None}:
            raise ValueError("extremes that are not needed")
    return columns


def _exact(values: Sequence[Any], kind: type) -> Numbers:
    if set(map(type, values)) != {kind}:
        raise TypeError(f"not all are {kind.__name__}")
    return np.array(values, np.int64 if kind is int else np.float64)
