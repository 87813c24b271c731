"""CAST and TRY_CAST between Flink's types."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.sql.expressions import numbers, times
from penstock.sql.plan.types import BYTES, INTEGERS, SqlType

if TYPE_CHECKING:
    from collections.abc import Callable

_TRUE = {"t", "true", "y", "yes", "on", "1"}
_FALSE = {"f", "false", "n", "no", "off", "0"}


class CastFailed(UserFunctionError):
    """The value of a column cannot be cast. TRY_CAST gives NULL in this case."""


def _failed(value: Any, target: SqlType) -> CastFailed:
    return CastFailed(
        f"CAST of {value!r} to {target} failed", remedy="use TRY_CAST, which gives NULL, or filter these rows before"
    )


def cast(source: SqlType, target: SqlType, zone: str) -> Callable[[Any], Any] | None:
    """Return the function that casts a value that is not NULL. None means that the value stays as it is.

    Raises:
        InvalidJob: Penstock does not have the cast.
    """
    if source.is_nested and source.name == target.name:
        return _to_nested(source, target, zone)
    if source.name == target.name and source.name not in ("DECIMAL", "TIMESTAMP", "TIMESTAMP_LTZ", "CHAR", "VARCHAR"):
        return None
    if source.name == "NULL":
        return None
    if target.is_string:
        return _to_string(source, target, zone)
    if target.is_number:
        found = _to_number(source, target)
    elif target.name == "BOOLEAN":
        found = partial(_text_to_boolean, target) if source.is_string else bool if source.is_integer else None
    elif target.is_time_of_day:
        found = _to_timestamp(source, target, zone)
    elif target.name in ("DATE", "TIME"):
        found = _to_date_or_time(source, target, zone)
    else:
        found = _to_bytes(source, target)
    if found is None:
        raise InvalidJob(
            f"SQL: Penstock does not support CAST from {source} to {target}",
            remedy="cast over STRING, or change the type of the column",
        )
    return found


def _to_nested(source: SqlType, target: SqlType, zone: str) -> Callable[[Any], Any] | None:
    if len(source.fields) != len(target.fields):
        raise InvalidJob(
            f"SQL: Penstock does not support CAST from {source} to {target}",
            remedy="cast to a ROW with the same fields",
        )
    casts = [cast(one, other, zone) for (_, one), (_, other) in zip(source.fields, target.fields, strict=True)]
    if not any(casts):
        return None
    parts = [_or_null(found) for found in casts]
    if source.name == "ROW":
        return lambda row: tuple([part(value) for part, value in zip(parts, row, strict=True)])
    if source.name == "ARRAY":
        return lambda array: tuple(map(parts[0], array))
    if source.name == "MULTISET":
        return lambda counts: {parts[0](element): count for element, count in counts.items()}
    return lambda found: {parts[0](key): parts[1](value) for key, value in found.items()}


def _or_null(function: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if function is None:
        return lambda value: value
    return lambda value: None if value is None else function(value)


def _to_number(source: SqlType, target: SqlType) -> Callable[[Any], Any] | None:
    if source.name == "BOOLEAN":
        source = SqlType("INTEGER")
    if source.is_string:
        return partial(_text_to_number, target)
    if not source.is_number:
        return None
    if target.is_integer:
        bits = INTEGERS[target.name]
        if source.is_integer:
            return partial(numbers.wrap, bits=bits)
        whole = numbers.decimal_to_integer if source.name == "DECIMAL" else numbers.to_integer
        return partial(whole, bits=bits)
    if target.name == "DOUBLE":
        return float
    if target.name == "FLOAT":
        return lambda value: numbers.single(float(value))
    precision, scale = target.precision, target.scale
    if source.name in ("FLOAT", "DOUBLE"):
        return lambda value: numbers.decimal(Decimal(repr(value)), precision, scale)
    return lambda value: numbers.decimal(Decimal(value), precision, scale)


def _text_to_number(target: SqlType, text: str) -> Any:
    text = text.strip()
    try:
        if "_" in text or not text.isascii():  # Python would read these digits
            raise ValueError(text)
        if target.name == "DECIMAL":
            number = Decimal(text)
            if not number.is_finite():
                raise ValueError(text)
            return numbers.decimal(number, target.precision, target.scale)
        if target.name in ("FLOAT", "DOUBLE"):
            return float(text) if target.name == "DOUBLE" else numbers.single(float(text))
        value = int(Decimal(text)) if "e" not in text.lower() else None
    except (ValueError, InvalidOperation, OverflowError):
        value = None
    if value is None or numbers.wrap(value, INTEGERS[target.name]) != value:
        raise _failed(text, target)
    return value


def _text_to_boolean(target: SqlType, text: str) -> bool:
    lower = text.strip().lower()
    if lower not in _TRUE and lower not in _FALSE:
        raise _failed(text, target)
    return lower in _TRUE


def _to_string(source: SqlType, target: SqlType, zone: str) -> Callable[[Any], Any] | None:
    text = _text_function(source, zone)
    length = target.precision
    if target.name == "CHAR" and length:
        return lambda value: text(value)[:length].ljust(length)
    if 0 < length < 2**31 - 1:
        return lambda value: text(value)[:length]
    return None if source.is_string else text


def _text_function(source: SqlType, zone: str) -> Callable[[Any], str]:
    if source.is_string:
        return str
    if source.is_nested:
        return _nested_text(source, zone)
    if source.name == "BOOLEAN":
        return lambda value: "TRUE" if value else "FALSE"
    if source.name == "FLOAT":
        return numbers.shortest_single
    if source.is_number:
        return numbers.text_of
    if source.name == "TIMESTAMP":
        return partial(times.text_of, precision=source.precision)
    if source.name == "TIMESTAMP_LTZ":
        return lambda value: times.text_of(times.to_local(value, zone), source.precision)
    if source.name == "DATE":
        return lambda value: times.date_of(value).isoformat()
    if source.name == "TIME":
        return times.time_text
    if source.name in BYTES:
        return lambda value: value.decode("utf-8", "replace")
    raise InvalidJob(
        f"SQL: Penstock does not support CAST from {source} to STRING", remedy="leave the column out of the query"
    )


def _nested_text(source: SqlType, zone: str) -> Callable[[Any], str]:
    def of(type: SqlType) -> Callable[[Any], str]:
        text = _text_function(type, zone)
        return lambda value: "NULL" if value is None else text(value)

    if source.name == "ROW":
        fields = [of(type) for _, type in source.fields]
        return lambda row: f"({', '.join([text(value) for text, value in zip(fields, row, strict=True)])})"
    first = of(source.element)
    if source.name == "ARRAY":
        return lambda array: f"[{', '.join(map(first, array))}]"
    second = of(source.value) if source.name == "MAP" else str
    return lambda found: f"{{{', '.join([f'{first(key)}={second(value)}' for key, value in found.items()])}}}"


def _to_timestamp(source: SqlType, target: SqlType, zone: str) -> Callable[[Any], Any] | None:
    precision = target.precision

    def from_text(text: str) -> int:
        found = times.parse_timestamp(text)
        if found is None:
            raise _failed(text, target)
        moment = times.to_instant(found, zone) if target.name == "TIMESTAMP_LTZ" else found
        return times.truncate(moment, precision)

    if source.is_string:
        return from_text
    if source.name == "DATE":
        days = 86_400_000_000
        return lambda v: times.to_instant(v * days, zone) if target.name == "TIMESTAMP_LTZ" else v * days
    if source.name == target.name:
        return partial(times.truncate, precision=precision) if precision < source.precision else int
    if source.name == "TIMESTAMP":
        return lambda value: times.truncate(times.to_instant(value, zone), precision)
    if source.name == "TIMESTAMP_LTZ":
        return lambda value: times.truncate(times.to_local(value, zone), precision)
    return None


def _to_date_or_time(source: SqlType, target: SqlType, zone: str) -> Callable[[Any], Any] | None:
    parse = times.parse_date if target.name == "DATE" else times.parse_time

    def from_text(text: str) -> int:
        stamp = times.parse_timestamp(text) if target.name == "DATE" else None
        found = parse(text) if stamp is None else stamp // 86_400_000_000
        if found is None:
            raise _failed(text, target)
        return found

    if source.is_string:
        return from_text
    if not source.is_time_of_day:
        return None
    local = source.name == "TIMESTAMP_LTZ"
    if target.name == "DATE":
        return lambda value: (times.to_local(value, zone) if local else value) // 86_400_000_000
    return lambda value: (times.to_local(value, zone) if local else value) % 86_400_000_000 // 1000


def _to_bytes(source: SqlType, target: SqlType) -> Callable[[Any], Any] | None:
    return str.encode if target.name in BYTES and source.is_string else None
