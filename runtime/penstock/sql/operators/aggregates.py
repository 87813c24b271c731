"""Aggregate functions. An accumulator is a list, because it is stored in keyed state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.sql.expressions import numbers
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import AggregateCall
from penstock.sql.plan.types import INTEGERS, SqlType

Accumulator = list[Any]


class Aggregate(ABC):
    """A function of many values. Values that are NULL are not passed to it.

    Args:
        type: type of the result.
    """

    can_retract = True
    """Whether the function supports `retract`. `_aggregate` refuses a table with updates if not."""

    def __init__(self, type: SqlType) -> None:
        self.type = type

    @abstractmethod
    def create(self) -> Accumulator: ...

    @abstractmethod
    def add(self, accumulator: Accumulator, value: Any) -> None: ...

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        """Remove a value that was added before. It is called only if `can_retract` is true."""
        raise NotImplementedError(f"{type(self).__qualname__} cannot remove values")

    @abstractmethod
    def result(self, accumulator: Accumulator) -> Any: ...


class Count(Aggregate):
    def create(self) -> Accumulator:
        return [0]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] += 1

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] -= 1

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0]


class Sum(Aggregate):
    """The sum and the number of values. A sum of no values is NULL."""

    def create(self) -> Accumulator:
        zero = Decimal(0) if self.type.name == "DECIMAL" else 0.0 if self.type.name in ("DOUBLE", "FLOAT") else 0
        return [zero, 0]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] += value
        accumulator[1] += 1

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] -= value
        accumulator[1] -= 1

    def result(self, accumulator: Accumulator) -> Any:
        return self.fitted(accumulator[0]) if accumulator[1] else None

    def fitted(self, value: Any) -> Any:
        """Return the number as a value of the result type."""
        if self.type.is_integer:
            return numbers.wrap(value, INTEGERS[self.type.name])
        if self.type.name == "DECIMAL":
            return numbers.decimal(value, self.type.precision, self.type.scale)
        return numbers.single(value) if self.type.name == "FLOAT" else value


class SumOrZero(Sum):
    def result(self, accumulator: Accumulator) -> Any:
        return self.fitted(accumulator[0])


class Average(Sum):
    def result(self, accumulator: Accumulator) -> Any:
        total, count = accumulator
        if not count:
            return None
        if self.type.is_integer:
            return numbers.wrap(numbers.divide_integers(total, count), INTEGERS[self.type.name])
        if self.type.name == "DECIMAL":
            return self.fitted(numbers.divide(total, Decimal(count)))
        return self.fitted(total / count)


class Extreme(Aggregate):
    """The least or greatest value, if values are never retracted."""

    can_retract = False
    choose: Callable[..., Any]

    def create(self) -> Accumulator:
        return []

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[:] = [type(self).choose(accumulator[0], value) if accumulator else value]

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0] if accumulator else None


class Minimum(Extreme):
    choose = staticmethod(min)


class Maximum(Extreme):
    choose = staticmethod(max)


class RetractableExtreme(Aggregate):
    """The least or greatest value. The accumulator counts each value, so that values can be retracted."""

    choose: Callable[..., Any]

    def create(self) -> Accumulator:
        return [{}]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        _count(accumulator[0], value, 1)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        _count(accumulator[0], value, -1)

    def result(self, accumulator: Accumulator) -> Any:
        present = [value for value, count in accumulator[0].items() if count > 0]
        return type(self).choose(present) if present else None


class RetractableMinimum(RetractableExtreme):
    choose = staticmethod(min)


class RetractableMaximum(RetractableExtreme):
    choose = staticmethod(max)


class First(Aggregate):
    can_retract = False

    def create(self) -> Accumulator:
        return []

    def add(self, accumulator: Accumulator, value: Any) -> None:
        if not accumulator:
            accumulator.append(value)

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0] if accumulator else None


class Last(First):
    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[:] = [value]


class Distinct(Aggregate):
    """Another aggregate over the distinct values. The accumulator counts each value."""

    def __init__(self, inner: Aggregate) -> None:
        super().__init__(inner.type)
        self._inner = inner

    def create(self) -> Accumulator:
        return [{}, self._inner.create()]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, 1) == 1:
            self._inner.add(accumulator[1], value)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, -1) == 0:
            self._inner.retract(accumulator[1], value)

    def result(self, accumulator: Accumulator) -> Any:
        return self._inner.result(accumulator[1])


def _count(counts: dict[Any, int], value: Any, change: int) -> int:
    """Change the count of a value, and return the new count. A value whose count is zero is removed from the dict."""
    count = counts.get(value, 0) + change
    if count:
        counts[value] = count
    else:
        counts.pop(value, None)
    return count


FUNCTIONS: dict[str, type[Aggregate]] = {
    "COUNT": Count,
    "SUM": Sum,
    "SUM0": SumOrZero,
    "AVG": Average,
    "MIN": Minimum,
    "MAX": Maximum,
    "FIRST_VALUE": First,
    "LAST_VALUE": Last,
}
"""Aggregates by Flink's names."""
_RETRACTABLE: dict[str, type[Aggregate]] = {"MIN": RetractableMinimum, "MAX": RetractableMaximum}


def _aggregate(call: AggregateCall, *, retracts: bool) -> Aggregate:
    found = FUNCTIONS.get(call.function)
    if found is not None and retracts:
        found = _RETRACTABLE.get(call.function, found)
    if found is None or (retracts and not found.can_retract):
        over = " over a table with updates" if found is not None else ""
        raise InvalidJob(
            f"SQL: Penstock does not support the aggregate {call.function}{over}",
            remedy=f"use one of {', '.join(sorted(FUNCTIONS))}",
        )
    if call.distinct and call.argument_types[0].contains("MAP", "MULTISET"):
        raise InvalidJob(
            f"SQL: Penstock does not support {call.function}(DISTINCT …) of the type {call.argument_types[0]}",
            remedy="CAST the argument to STRING",
        )
    aggregate = found(call.type)
    return Distinct(aggregate) if call.distinct else aggregate


class Aggregates:
    """The aggregate calls of a node, over the rows of one key.

    Args:
        retracts: whether rows can be retracted.

    Raises:
        InvalidJob: Penstock does not have an aggregate, or it cannot retract rows.
    """

    def __init__(self, calls: tuple[AggregateCall, ...], *, retracts: bool) -> None:
        self._calls = [
            (_aggregate(call, retracts=retracts), call.arguments[0] if call.arguments else -1, call.filter)
            for call in calls
        ]
        for call in calls:
            if len(call.arguments) > 1:
                raise InvalidJob(
                    f"SQL: Penstock does not support {call.function} with {len(call.arguments)} arguments",
                    remedy="use one argument, for example a concatenation of the columns",
                )

    def create(self) -> list[Accumulator]:
        return [aggregate.create() for aggregate, _, _ in self._calls]

    def add(self, accumulators: list[Accumulator], row: SqlRow) -> None:
        for (aggregate, argument, filter), accumulator in zip(self._calls, accumulators, strict=True):
            if filter < 0 or row[filter] is True:
                value = 1 if argument < 0 else row[argument]
                if value is not None:
                    aggregate.add(accumulator, value)

    def retract(self, accumulators: list[Accumulator], row: SqlRow) -> None:
        for (aggregate, argument, filter), accumulator in zip(self._calls, accumulators, strict=True):
            if filter < 0 or row[filter] is True:
                value = 1 if argument < 0 else row[argument]
                if value is not None:
                    aggregate.retract(accumulator, value)

    def results(self, accumulators: list[Accumulator]) -> SqlRow:
        return tuple(
            [aggregate.result(found) for (aggregate, _, _), found in zip(self._calls, accumulators, strict=True)]
        )
