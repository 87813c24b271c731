"""Aggregate functions. An accumulator is a list, because it is stored in keyed state."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.sql.expressions import numbers
from penstock.sql.expressions.user_calls import arguments_of
from penstock.sql.plan.nodes import AggregateCall
from penstock.sql.plan.types import INTEGERS, SqlType
from penstock.sql.tables.objects import value_of

Accumulator = list[Any]
NOT_A_NUMBER = "NaN"
"""NaN as a key of counts, because NaN is not equal to itself."""


class Aggregate(ABC):
    """A function of many values. Values that are NULL are not passed to it. A function of several arguments gets tuples.

    Args:
        type: type of the result.
    """

    can_retract = True
    """Whether the function supports `retract`. `_aggregate` refuses a table with updates if not."""
    takes_null = False
    """Whether rows whose first argument is NULL are passed."""

    can_merge = True
    """Whether the function supports `merge`. Sessions need it."""
    is_wide = False
    """Whether `add` gets a tuple of all arguments, with NULLs, instead of one value."""

    def __init__(self, type: SqlType) -> None:
        self.type = type

    @abstractmethod
    def create(self) -> Accumulator: ...

    @abstractmethod
    def add(self, accumulator: Accumulator, value: Any) -> None: ...

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        """Remove a value that was added before. It is called only if `can_retract` is true."""
        raise NotImplementedError(f"{type(self).__qualname__} cannot remove values")

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        """Add the values of another accumulator. It is called only if `can_merge` is true."""
        raise NotImplementedError(f"{type(self).__qualname__} cannot merge")

    @abstractmethod
    def result(self, accumulator: Accumulator) -> Any: ...


class Count(Aggregate):
    def create(self) -> Accumulator:
        return [0]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] += 1

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] -= 1

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        accumulator[0] += other[0]

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0]


class Sum(Aggregate):
    """The sum and the number of values. A sum of no values is NULL. Sums of DECIMAL are exact."""

    def __init__(self, type: SqlType) -> None:
        super().__init__(type)
        is_decimal = type.name == "DECIMAL"
        self._plus: Callable[[Any, Any], Any] = numbers.add if is_decimal else operator.add
        self._minus: Callable[[Any, Any], Any] = numbers.subtract if is_decimal else operator.sub

    def create(self) -> Accumulator:
        zero = Decimal(0) if self.type.name == "DECIMAL" else 0.0 if self.type.name in ("DOUBLE", "FLOAT") else 0
        return [zero, 0]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] = self._plus(accumulator[0], value)
        accumulator[1] += 1

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        accumulator[0] = self._minus(accumulator[0], value)
        accumulator[1] -= 1

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        accumulator[0] = self._plus(accumulator[0], other[0])
        accumulator[1] += other[1]

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

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        if other:
            self.add(accumulator, other[0])

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0] if accumulator else None


class Minimum(Extreme):
    choose = staticmethod(min)


class Maximum(Extreme):
    choose = staticmethod(max)


class RetractableExtreme(Aggregate):
    """The least or greatest value. The accumulator counts each value, so that values can be retracted, and has the current result."""

    choose: Callable[..., Any]

    def create(self) -> Accumulator:
        return [{}, None]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, 1) > 0 and value == value:
            best = accumulator[1]
            accumulator[1] = value if best is None else type(self).choose(best, value)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, -1) <= 0 and value == accumulator[1]:
            self._search(accumulator)

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        for value, count in other[0].items():
            _count(accumulator[0], value, count)
        self._search(accumulator)

    def _search(self, accumulator: Accumulator) -> None:
        is_float = self.type.name in ("DOUBLE", "FLOAT")
        present = [
            value for value, count in accumulator[0].items() if count > 0 and not (is_float and value == NOT_A_NUMBER)
        ]
        accumulator[1] = type(self).choose(present) if present else None

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[1]


class RetractableMinimum(RetractableExtreme):
    choose = staticmethod(min)


class RetractableMaximum(RetractableExtreme):
    choose = staticmethod(max)


class First(Aggregate):
    can_retract = False
    can_merge = False

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


class _AllValues(Aggregate):
    """The base of functions whose accumulator has all values that were not retracted."""

    can_merge = False

    def create(self) -> Accumulator:
        return []

    def add(self, accumulator: Accumulator, value: Any) -> None:
        accumulator.append(value)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        _remove(accumulator, value)


class RetractableFirst(_AllValues):
    """The first of the values that were not retracted."""

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0] if accumulator else None


def _remove(values: list[Any], value: Any) -> None:
    """Remove the first value that is equal. NaN is equal to NaN."""
    for place, kept in enumerate(values):
        if kept == value or (kept != kept and value != value):
            del values[place]
            return


class RetractableLast(RetractableFirst):
    """The last of the values that were not retracted."""

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[-1] if accumulator else None


class Lag(Aggregate):
    """The value a number of rows before the last row. The accumulator has the last values, the offset and the default."""

    can_retract = False
    can_merge = False
    is_wide = True

    def create(self) -> Accumulator:
        return [[], 1, None]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        kept, offset, default = [*accumulator[0], value[0]], value[1] if len(value) > 1 else 1, None
        if len(value) > 2:
            default = value[2]
        accumulator[:] = [kept[-offset - 1 :], offset, default]

    def result(self, accumulator: Accumulator) -> Any:
        kept, offset, default = accumulator
        return kept[0] if len(kept) > offset else default


class Distinct(Aggregate):
    """Another aggregate over the distinct values. The accumulator counts each value."""

    def __init__(self, inner: Aggregate, *, of_floats: bool) -> None:
        super().__init__(inner.type)
        self._inner = inner
        self._of_floats = of_floats
        self.can_merge = inner.can_merge

    def create(self) -> Accumulator:
        return [{}, self._inner.create()]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, 1) == 1:
            self._inner.add(accumulator[1], value)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        if _count(accumulator[0], value, -1) == 0:
            self._inner.retract(accumulator[1], value)

    def merge(self, accumulator: Accumulator, other: Accumulator) -> None:
        for value, count in other[0].items():
            if _count(accumulator[0], value, count) == count:
                self._inner.add(accumulator[1], math.nan if self._of_floats and value == NOT_A_NUMBER else value)

    def result(self, accumulator: Accumulator) -> Any:
        return self._inner.result(accumulator[1])


def _count(counts: dict[Any, int], value: Any, change: int) -> int:
    """Change the count of a value, and return the new count. A value whose count is zero is removed from the dict."""
    if value != value:
        value = NOT_A_NUMBER
    count = counts.get(value, 0) + change
    if count:
        counts[value] = count
    else:
        counts.pop(value, None)
    return count


class ListAggregate(Aggregate):
    """LISTAGG: the texts with a delimiter."""

    can_merge = False
    can_retract = False

    def create(self) -> Accumulator:
        return []

    def add(self, accumulator: Accumulator, value: Any) -> None:
        text, delimiter = value if isinstance(value, tuple) else (value, ",")
        if text is not None:
            accumulator[:] = [f"{accumulator[0]}{delimiter}{text}" if accumulator else text]

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[0] if accumulator else None


class RetractableListAggregate(Aggregate):
    """LISTAGG over a table with updates. The accumulator has the texts and the delimiter."""

    can_merge = False

    def create(self) -> Accumulator:
        return [[], ","]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        text, accumulator[1] = value if isinstance(value, tuple) else (value, ",")
        if text is not None:
            accumulator[0].append(text)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        text = value[0] if isinstance(value, tuple) else value
        if text in accumulator[0]:
            accumulator[0].remove(text)

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[1].join(accumulator[0]) if accumulator[0] else None


class ArrayAggregate(_AllValues):
    """ARRAY_AGG: all values, also NULL."""

    takes_null = True

    def result(self, accumulator: Accumulator) -> Any:
        return tuple(accumulator) if accumulator else None


class Collect(Aggregate):
    """COLLECT: the multiset of the values."""

    can_merge = False

    def create(self) -> Accumulator:
        return [{}]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        _count(accumulator[0], value, 1)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        _count(accumulator[0], value, -1)

    def result(self, accumulator: Accumulator) -> Any:
        counts = dict(accumulator[0])
        if self.type.element.name in ("DOUBLE", "FLOAT") and NOT_A_NUMBER in counts:
            counts[math.nan] = counts.pop(NOT_A_NUMBER)
        return counts


class SquaredDistances(Aggregate):
    """The sum of the squared distances from the mean, by Welford's algorithm. The plan computes STDDEV and VAR from it."""

    can_merge = False

    def create(self) -> Accumulator:
        return [0, 0.0, 0.0]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        count, mean, distances = accumulator
        number = float(value)
        before = number - mean
        mean += before / (count + 1)
        accumulator[:] = [count + 1, mean, distances + before * (number - mean)]

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        count, mean, distances = accumulator
        if count <= 1:
            accumulator[:] = self.create()
            return
        number = float(value)
        before = (count * mean - number) / (count - 1)
        accumulator[:] = [count - 1, before, max(0.0, distances - (number - mean) * (number - before))]

    def result(self, accumulator: Accumulator) -> Any:
        return accumulator[2] if accumulator[0] else None


class UserAggregate(Aggregate):
    """An aggregate function of the program. The accumulator is a list with the function's own accumulator."""

    can_merge = False
    is_wide = True

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call.type)
        assert call.user is not None
        self.can_retract = call.user.can_retract
        self._call = call
        self._prepare()

    def _prepare(self) -> None:
        user = self._call.user
        assert user is not None
        self._function = user.implementation
        self._arguments = arguments_of(self._call.argument_types, user.zone)
        self._result = value_of(self._call.type, user.zone)

    def __getstate__(self) -> dict[str, Any]:
        return {"type": self.type, "can_retract": self.can_retract, "_call": self._call}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def create(self) -> Accumulator:
        return [self._function.create_accumulator()]

    def add(self, accumulator: Accumulator, value: Any) -> None:
        self._change(self._function.accumulate, accumulator, value)

    def retract(self, accumulator: Accumulator, value: Any) -> None:
        self._change(self._function.retract, accumulator, value)

    def _change(self, method: Callable[..., Any], accumulator: Accumulator, value: Any) -> None:
        changed = method(accumulator[0], *self._arguments(value))
        if changed is not None:
            accumulator[0] = changed

    def result(self, accumulator: Accumulator) -> Any:
        return self._result(self._function.get_value(accumulator[0]))
