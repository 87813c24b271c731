"""Python objects that a program gives to SQL, as values of SQL types."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from penstock.common.errors import UserFunctionError
from penstock.common.time import Instant
from penstock.common.types import Row
from penstock.sql.expressions import numbers, times
from penstock.sql.plan.types import BYTES, INTEGERS, SqlType

Convert = Callable[[Any], Any]
_SHOWN = 100


def value_of(type: SqlType, zone: str) -> Convert:
    """Return a function from a Python object to the value of the type. None stays None.

    Raises:
        UserFunctionError: the function got an object of another type, or a number that is too large.

    >>> from penstock.sql.plan.types import type_of
    >>> value_of(type_of("ROW<a INT, b ARRAY<DATE>>"), "UTC")({"a": 1, "b": [date(1970, 1, 2)]})
    (1, (1,))
    """
    convert = _converter(type, zone)

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise UserFunctionError(
                f"{repr(value)[:_SHOWN]} is not a value of the type {type}",
                remedy="return another object, or declare another type",
            ) from error

    return checked


def _converter(type: SqlType, zone: str) -> Convert:
    if type.is_nested:
        return _nested(type, zone)
    if type.is_integer:
        return lambda value: _integer(value, INTEGERS[type.name])
    if type.name == "FLOAT":
        return lambda value: numbers.single(_number(value))
    if type.name == "DECIMAL":
        return lambda value: numbers.decimal(Decimal(str(_plain(value))), type.precision, type.scale)
    if type.name == "TIMESTAMP":
        return lambda value: times.truncate(_local(value), type.precision)
    if type.name == "TIMESTAMP_LTZ":
        return lambda value: times.truncate(_instant(value, zone), type.precision)
    if type.is_string:
        return lambda value: _checked(_plain(value), str)
    if type.name in BYTES:
        return lambda value: bytes(_checked(value, bytes, bytearray, memoryview))
    return _SIMPLE.get(type.name, _refuse)


def _refuse(value: Any) -> Any:
    raise TypeError


def _plain(value: Any) -> Any:
    """Return the Python object of a numpy scalar."""
    return value.item() if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 else value


def _checked(value: Any, *types: type) -> Any:
    if not isinstance(value, types):
        raise TypeError
    return value


def _integer(value: Any, bits: int) -> int:
    found = _plain(value)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    number = operator.index(found)
    if numbers.wrap(number, bits) != number:
        raise ValueError
    return int(number)


def _number(value: Any) -> float:
    found = _plain(value)
    return float(_checked(found, int, float, Decimal))


def _boolean(value: Any) -> bool:
    return bool(_checked(_plain(value), bool))


def _local(value: Any) -> int:
    found = _checked(value, datetime)
    return int(times.micros_of(found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found))


def _instant(value: Any, zone: str) -> int:
    if isinstance(value, Instant):
        return value.to_epoch_milli() * 1000
    found = _checked(value, datetime)
    return _local(found) if found.tzinfo else times.to_instant(_local(found), zone)


def _date(value: Any) -> int:
    found = _checked(value, date)
    return int(times.days_of(found))


def _time(value: Any) -> int:
    found = _checked(value, time)
    return int(((found.hour * 60 + found.minute) * 60 + found.second) * 1000 + found.microsecond // 1000)


_SIMPLE: dict[str, Convert] = {
    "BOOLEAN": _boolean,
    "DOUBLE": _number,
    "DATE": _date,
    "TIME": _time,
    "INTERVAL_MS": lambda value: _checked(value, timedelta) // timedelta(milliseconds=1),
    "INTERVAL_MONTHS": lambda value: _integer(value, 32),
    "NULL": _refuse,
}


def _nested(type: SqlType, zone: str) -> Convert:
    parts = [value_of(part, zone) for _, part in type.fields]
    if type.name == "ARRAY":
        return lambda value: tuple(map(parts[0], _items(value)))
    if type.name == "MAP":
        return lambda value: {parts[0](key): parts[1](found) for key, found in _checked(value, dict).items()}
    if type.name == "MULTISET":
        return lambda value: {parts[0](key): int(count) for key, count in _counted(value).items()}
    names = [name for name, _ in type.fields]

    def row(value: Any) -> Any:
        if isinstance(value, dict):
            fields = [value.get(name) for name in names]
        else:
            fields = list(_checked(value, Row, tuple, list))
        if len(fields) != len(parts):
            raise ValueError
        return tuple([part(field) for part, field in zip(parts, fields, strict=True)])

    return row


def _counted(value: Any) -> Counter[Any]:
    """Return the counts of a list of elements, or the counts themselves."""
    return Counter(_checked(value, dict, list, tuple))


def _items(value: Any) -> Any:
    return value if hasattr(value, "dtype") else _checked(value, list, tuple)
