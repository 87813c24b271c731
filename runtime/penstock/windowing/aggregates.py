"""Built-in window aggregates on fields: mean, sum, min, max, count, several of them in one pass (T39).

    readings.key_by("station").window(TumblingEventTimeWindows.of(timedelta(days=1))).aggregate(
        FieldAggregate.of(FieldAggregate.mean("celsius"), FieldAggregate.max("celsius"), FieldAggregate.count())
    )

They are ordinary aggregate functions, and the window operator also knows them by their columns: a field is read once per
batch, and records that arrive as Arrow columns are aggregated without becoming Python objects.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.common.errors import InvalidJob
from penstock.functions.record_functions import AggregateFunction
from penstock.records.fields import Field, read_field, read_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = Literal["mean", "sum", "min", "max", "count"]

Stats = tuple[int, int, Any, Any, Any]
"""What is kept of one field: the number of records, of values that are not None, their sum, minimum and maximum.

A tuple, not a list: a million of them do not slow the garbage collector down, which looks at lists again and again and at
tuples of numbers once. What is not needed stays 0 or None.
"""
RECORDS, COUNT, SUM, MIN, MAX = range(5)
NO_STATS: Stats = (0, 0, 0, None, None)


class _Part(NamedTuple):
    kind: Kind
    field: Field | None


class FieldAggregate(AggregateFunction):
    """One or several aggregates of fields. The result is a plain value for one, a tuple for several.

    A field that is None does not count; the aggregate of no values is None (count: 0). `count()` without a field counts
    records.

    >>> both = FieldAggregate.of(FieldAggregate.mean("t"), FieldAggregate.count())
    >>> accumulator = both.create_accumulator()
    >>> for t in (1, 2, 6): accumulator = both.add({"t": t}, accumulator)
    >>> both.get_result(accumulator)
    (3.0, 3)
    """

    def __init__(self, parts: Sequence[tuple[Kind, Field | None]]) -> None:
        self.parts = tuple(_Part(*part) for part in parts)
        if not self.parts:
            raise InvalidJob("FieldAggregate needs at least one aggregate", remedy="for example FieldAggregate.mean(…)")
        named = dict.fromkeys(part.field for part in self.parts if part.field is not None)
        self.fields: list[Field | None] = list(named) or [None]
        """The fields to read; [None] if only records are counted, which the first field's stats tell as well."""
        self.needs: list[frozenset[str]] = [
            frozenset(part.kind for part in self.parts if part.field == field) for field in self.fields
        ]
        self._steps = [_step_for(need) for need in self.needs]
        self._readers = [
            (_records, 0) if part.field is None else (_READERS[part.kind], self.fields.index(part.field))
            for part in self.parts
        ]
        self._is_single = len(self.fields) == 1

    @staticmethod
    def mean(field: Field) -> FieldAggregate:
        return FieldAggregate([("mean", field)])

    @staticmethod
    def sum(field: Field) -> FieldAggregate:
        return FieldAggregate([("sum", field)])

    @staticmethod
    def min(field: Field) -> FieldAggregate:
        return FieldAggregate([("min", field)])

    @staticmethod
    def max(field: Field) -> FieldAggregate:
        return FieldAggregate([("max", field)])

    @staticmethod
    def count(field: Field | None = None) -> FieldAggregate:
        return FieldAggregate([("count", field)])

    @staticmethod
    def of(*aggregates: FieldAggregate) -> FieldAggregate:
        """All of them in one pass; the result is a tuple in this order."""
        return FieldAggregate([part for aggregate in aggregates for part in aggregate.parts])

    def create_accumulator(self) -> tuple[Any, ...]:
        """`Stats` of the field; a tuple of them if there are several fields."""
        return NO_STATS if self._is_single else (NO_STATS,) * len(self.fields)

    def add(self, value: Any, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs = [value if field is None else read_one(value, field) for field in self.fields]
        return self.stepper()(inputs[0] if self._is_single else inputs, accumulator)

    def get_result(self, accumulator: tuple[Any, ...]) -> Any:
        results = self.results(accumulator)
        return results[0] if len(results) == 1 else results

    def results(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """The result of every part, in order."""
        if self._is_single:
            return tuple([read(accumulator) for read, _ in self._readers])
        return tuple([read(accumulator[index]) for read, index in self._readers])

    def merge(self, acc_a: tuple[Any, ...], acc_b: tuple[Any, ...]) -> tuple[Any, ...]:
        return _merged(acc_a, acc_b) if self._is_single else tuple(map(_merged, acc_a, acc_b))

    def prepare(self, values: list[Any]) -> list[Any]:
        """What `stepper()` takes for each record: the field's value, or a tuple of them if there are several fields."""
        columns = [values if field is None else read_field(values, field) for field in self.fields]
        return columns[0] if self._is_single else list(zip(*columns, strict=True))

    def stepper(self) -> Callable[[Any, Any], tuple[Any, ...]]:
        """(prepared input, accumulator) -> accumulator."""
        return self._steps[0] if self._is_single else self._step_fields

    def _step_fields(self, values: Sequence[Any], accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([step(value, stats) for step, value, stats in zip(self._steps, values, accumulator, strict=True)])

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind}({'' if field is None else repr(field)})" for kind, field in self.parts)
        return f"FieldAggregate({parts})"


def _merged(a: Any, b: Any) -> Stats:
    low, high = a[MIN], a[MAX]
    if low is None or (b[MIN] is not None and b[MIN] < low):
        low = b[MIN]
    if high is None or (b[MAX] is not None and b[MAX] > high):
        high = b[MAX]
    return a[RECORDS] + b[RECORDS], a[COUNT] + b[COUNT], a[SUM] + b[SUM], low, high


def _mean(stats: Any) -> Any:
    return stats[SUM] / stats[COUNT] if stats[COUNT] else None


def _sum(stats: Any) -> Any:
    return stats[SUM] if stats[COUNT] else None


_records = itemgetter(RECORDS)
_READERS: dict[Kind, Callable[[Any], Any]] = {
    "count": itemgetter(COUNT),
    "min": itemgetter(MIN),
    "max": itemgetter(MAX),
    "mean": _mean,
    "sum": _sum,
}


def _step_count(value: Any, stats: Any) -> Stats:
    records, count, total, low, high = stats
    return records + 1, count if value is None else count + 1, total, low, high


def _step_sum(value: Any, stats: Any) -> Stats:
    records, count, total, low, high = stats
    if value is None:
        return records + 1, count, total, low, high
    return records + 1, count + 1, total + value, low, high


def _step_extremes(value: Any, stats: Any) -> Stats:
    records, count, total, low, high = stats
    if value is None:
        return records + 1, count, total, low, high
    if low is None or value < low:
        low = value
    if high is None or value > high:
        high = value
    return records + 1, count + 1, total, low, high


def _step_all(value: Any, stats: Any) -> Stats:
    records, count, total, low, high = stats
    if value is None:
        return records + 1, count, total, low, high
    if low is None or value < low:
        low = value
    if high is None or value > high:
        high = value
    return records + 1, count + 1, total + value, low, high


def _step_for(need: frozenset[str]) -> Callable[[Any, Any], Stats]:
    """The function that counts one value in, for the aggregates that are needed of its field."""
    if need & {"min", "max"}:
        return _step_all if need & {"mean", "sum"} else _step_extremes
    return _step_sum if need & {"mean", "sum"} else _step_count
