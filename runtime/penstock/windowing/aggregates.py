"""Built-in aggregates of fields: mean, sum, min, max, count, or several of them in one pass.

    readings.key_by("station").window(TumblingEventTimeWindows.of(timedelta(days=1))).aggregate(
        FieldAggregate.of(FieldAggregate.mean("celsius"), FieldAggregate.max("celsius"), FieldAggregate.count())
    )

These aggregates are ordinary aggregate functions. The window operator and the rolling operator also know the fields of
these functions. The operators read a field once per batch, and aggregate Arrow columns without creating Python objects.
The results for rows and columns follow one definition, the docstring of `FieldAggregate`, and have the same values and
types.
"""

from __future__ import annotations

from decimal import InvalidOperation
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.common.errors import InvalidJob
from penstock.functions.record_functions import AggregateFunction
from penstock.records.fields import Field, read_field, read_one
from penstock.records.order import greater, lesser, python_number, python_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = Literal["mean", "sum", "min", "max", "count"]

Stats = tuple[int, int, Any, Any, Any]
"""The accumulator of one field: the number of records, the number of values that are not None, their sum, minimum and maximum.

A sum that no aggregate needs is always 0, and an unneeded minimum or maximum is always None. The accumulator is a tuple
and not a list, because the garbage collector scans a tuple of numbers only once.
"""
RECORDS, COUNT, SUM, MIN, MAX = range(5)
NO_STATS: Stats = (0, 0, 0, None, None)


class _Part(NamedTuple):
    kind: Kind
    field: Field | None


class FieldAggregate(AggregateFunction):
    """One or several aggregates of fields. The result is a plain value for one aggregate, and a tuple for several.

    The result depends only on the records of a key or window and on their order. It does not depend on the form of the
    records (rows or columns), the boundaries of batches, or the state backend. A restore between two records does not
    change it, either.

    * A field that is None is skipped. The aggregate of no values is None, and `count` is 0. `count()` without a field
      counts records.
    * `sum` adds the values in order of arrival, as `0 + a + b + …` in Python. Integers are exact at any size. Floats
      follow IEEE 754: the sum with NaN is NaN, inf + -inf is NaN, and a sum is never -0.0. Decimals are exact up to the
      precision of Python's decimal context (28 digits), and cannot be added to floats. A bool counts as 0 or 1.
    * `mean` is the sum divided by the count: a float, or a Decimal for Decimals.
    * `min` and `max` put -0.0 below 0.0 and NaN above every other number, as Flink does. So `max` is NaN if any value
      is NaN, and `min` is NaN only if all values are. If values are equal but have different types, the first one is
      kept. Values can be of any type that has an order: text, datetimes, Decimals, tuples.
    * A numpy number counts as the Python number that is equal to it, so it cannot wrap around.
    * A value that cannot be added or compared fails the job with an error that names the record.

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
        """The fields to read.

        It is [None] if only records are counted. Other fields make None unnecessary, because the stats of any field
        include the number of records.
        """
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
        """Return an aggregate that computes all given aggregates in one pass.

        Its result is a tuple in the order of the arguments.
        """
        return FieldAggregate([part for aggregate in aggregates for part in aggregate.parts])

    def create_accumulator(self) -> tuple[Any, ...]:
        """Return the empty accumulator: `Stats` of the field, or a tuple of `Stats` for several fields."""
        return NO_STATS if self._is_single else (NO_STATS,) * len(self.fields)

    def add(self, value: Any, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs = [value if field is None else read_one(value, field) for field in self.fields]
        inputs = list(map(python_number, inputs))
        return self.stepper()(inputs[0] if self._is_single else inputs, accumulator)

    def get_result(self, accumulator: tuple[Any, ...]) -> Any:
        results = self.results(accumulator)
        return results[0] if len(results) == 1 else results

    def results(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the result of every aggregate, in order."""
        if self._is_single:
            return tuple([read(accumulator) for read, _ in self._readers])
        return tuple([read(accumulator[index]) for read, index in self._readers])

    def merge(self, acc_a: tuple[Any, ...], acc_b: tuple[Any, ...]) -> tuple[Any, ...]:
        return _merged(acc_a, acc_b) if self._is_single else tuple(map(_merged, acc_a, acc_b))

    def prepare(self, values: list[Any]) -> list[Any]:
        """Return the input of `stepper()` for each record: the field's value, or a tuple of values for several fields."""
        columns = [values if field is None else python_numbers(read_field(values, field)) for field in self.fields]
        return columns[0] if self._is_single else list(zip(*columns, strict=True))

    def stepper(self) -> Callable[[Any, Any], tuple[Any, ...]]:
        """Return a function from (prepared input, accumulator) to the next accumulator."""
        return self._steps[0] if self._is_single else self._step_fields

    def _step_fields(self, values: Sequence[Any], accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([step(value, stats) for step, value, stats in zip(self._steps, values, accumulator, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parts,)

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind}({'' if field is None else repr(field)})" for kind, field in self.parts)
        return f"FieldAggregate({parts})"


def _merged(a: Any, b: Any) -> Stats:
    low = a[MIN] if b[MIN] is None else lesser(a[MIN], b[MIN])
    high = a[MAX] if b[MAX] is None else greater(a[MAX], b[MAX])
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


def _step_for(need: frozenset[str]) -> Callable[[Any, Any], Stats]:
    """Return the function that adds one value to the accumulator of its field.

    Args:
        need: the needed aggregates of the field.
    """
    keeps_sum, keeps_low, keeps_high = bool(need & {"mean", "sum"}), "min" in need, "max" in need
    if not keeps_low and not keeps_high:
        return _step_sum if keeps_sum else _step_count

    def step(value: Any, stats: Any) -> Stats:
        records, count, total, low, high = stats
        if value is None:
            return records + 1, count, total, low, high
        if keeps_sum:
            total = total + value
        try:  # `lesser` and `greater` are called only if a comparison does not decide
            if keeps_low and value is not low and (low is None or not value > low):
                low = lesser(low, value)
            if keeps_high and value is not high and (high is None or not value < high):
                high = greater(high, value)
        except InvalidOperation:  # Python refuses to compare a Decimal NaN with `<`
            low = lesser(low, value) if keeps_low else None
            high = greater(high, value) if keeps_high else None
        return records + 1, count + 1, total, low, high

    return step
