"""Built-in window aggregates on fields: mean, sum, min, max, count, several of them in one pass (T39).

    readings.key_by("station").window(TumblingEventTimeWindows.of(timedelta(days=1))).aggregate(
        FieldAggregate.of(FieldAggregate.mean("celsius"), FieldAggregate.max("celsius"), FieldAggregate.count())
    )

They are ordinary aggregate functions, and the window operator also knows them by their columns: a field is read once per
batch, and records that arrive as Arrow columns are aggregated without becoming Python objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import AggregateFunction
from penstock.taskmanager.operators.fields import Field, read_field, read_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = Literal["mean", "sum", "min", "max", "count"]

COUNT, SUM, MIN, MAX = range(4)
STATS = 4
"""Numbers the accumulator holds per field: count of values that are not None, their sum, minimum and maximum."""


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
        self.fields: list[Field | None] = list(dict.fromkeys(part.field for part in self.parts))
        self.needs: list[frozenset[str]] = [
            frozenset(part.kind for part in self.parts if part.field == field) for field in self.fields
        ]
        self._steps = [_step_for(field, need) for field, need in zip(self.fields, self.needs, strict=True)]
        self._readers = [(_READERS[part.kind], STATS * self.fields.index(part.field)) for part in self.parts]
        self._steps_at = [(step, STATS * index) for index, step in enumerate(self._steps)]

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

    def create_accumulator(self) -> list[Any]:
        return [0, 0, None, None] * len(self.fields)

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        inputs = [value if field is None else read_one(value, field) for field in self.fields]
        return self._step_fields(inputs, accumulator)

    def get_result(self, accumulator: list[Any]) -> Any:
        results = self.results(accumulator)
        return results[0] if len(results) == 1 else results

    def results(self, accumulator: list[Any]) -> tuple[Any, ...]:
        """The result of every part, in order."""
        return tuple([read(accumulator, at) for read, at in self._readers])

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        """Adds `acc_b` to `acc_a`."""
        for at in range(0, len(acc_a), STATS):
            acc_a[at + COUNT] += acc_b[at + COUNT]
            acc_a[at + SUM] += acc_b[at + SUM]
            low, high = acc_b[at + MIN], acc_b[at + MAX]
            if low is not None and (acc_a[at + MIN] is None or low < acc_a[at + MIN]):
                acc_a[at + MIN] = low
            if high is not None and (acc_a[at + MAX] is None or high > acc_a[at + MAX]):
                acc_a[at + MAX] = high
        return acc_a

    def prepare(self, values: list[Any]) -> list[Any]:
        """What `stepper()` takes for each record: the field's value, or a tuple of them if there are several fields."""
        columns = [values if field is None else read_field(values, field) for field in self.fields]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def stepper(self) -> Callable[..., list[Any]]:
        """(prepared input, accumulator) -> the same accumulator, changed."""
        return self._steps[0] if len(self._steps) == 1 else self._step_fields

    def _step_fields(self, values: Sequence[Any], accumulator: list[Any]) -> list[Any]:
        for (step, at), value in zip(self._steps_at, values, strict=True):
            step(value, accumulator, at)
        return accumulator

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind}({'' if field is None else repr(field)})" for kind, field in self.parts)
        return f"FieldAggregate({parts})"


def _count(accumulator: list[Any], at: int) -> Any:
    return accumulator[at]


def _mean(accumulator: list[Any], at: int) -> Any:
    return accumulator[at + SUM] / accumulator[at] if accumulator[at] else None


def _sum(accumulator: list[Any], at: int) -> Any:
    return accumulator[at + SUM] if accumulator[at] else None


def _min(accumulator: list[Any], at: int) -> Any:
    return accumulator[at + MIN]


def _max(accumulator: list[Any], at: int) -> Any:
    return accumulator[at + MAX]


_READERS: dict[Kind, Callable[[list[Any], int], Any]] = {
    "count": _count,
    "mean": _mean,
    "sum": _sum,
    "min": _min,
    "max": _max,
}


def _step_records(value: Any, accumulator: list[Any], at: int = 0) -> list[Any]:
    accumulator[at] += 1
    return accumulator


def _step_count(value: Any, accumulator: list[Any], at: int = 0) -> list[Any]:
    if value is not None:
        accumulator[at] += 1
    return accumulator


def _step_sum(value: Any, accumulator: list[Any], at: int = 0) -> list[Any]:
    if value is not None:
        accumulator[at] += 1
        accumulator[at + SUM] += value
    return accumulator


def _step_extremes(value: Any, accumulator: list[Any], at: int = 0) -> list[Any]:
    if value is not None:
        if not accumulator[at]:
            accumulator[at + MIN] = accumulator[at + MAX] = value
        elif value < accumulator[at + MIN]:
            accumulator[at + MIN] = value
        elif value > accumulator[at + MAX]:
            accumulator[at + MAX] = value
        accumulator[at] += 1
    return accumulator


def _step_all(value: Any, accumulator: list[Any], at: int = 0) -> list[Any]:
    if value is not None:
        accumulator[at + SUM] += value
        if not accumulator[at]:
            accumulator[at + MIN] = accumulator[at + MAX] = value
        elif value < accumulator[at + MIN]:
            accumulator[at + MIN] = value
        elif value > accumulator[at + MAX]:
            accumulator[at + MAX] = value
        accumulator[at] += 1
    return accumulator


def _step_for(field: Field | None, need: frozenset[str]) -> Callable[..., list[Any]]:
    """The function that counts one value in, for the aggregates that are needed of its field."""
    if field is None:
        return _step_records
    if need & {"min", "max"}:
        return _step_all if need & {"mean", "sum"} else _step_extremes
    return _step_sum if need & {"mean", "sum"} else _step_count
