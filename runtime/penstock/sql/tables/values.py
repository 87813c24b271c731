"""Values of SQL types outside of SQL: in JSON, in CSV, as Python objects, and as printed text."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.sql.expressions import numbers, times
from penstock.sql.plan.types import BYTES, INTEGERS, SqlType

Convert = Callable[[Any], Any]


class _Wrong(ValueError):
    pass


def reader(type: SqlType) -> Convert:
    """Return a function from a JSON value or the text of a CSV field to the value of the type. None stays None.

    >>> reader(SqlType("INTEGER"))("5"), reader(SqlType("TIMESTAMP", precision=3))("1970-01-01 00:00:01")
    (5, 1000000)
    """
    read = _reader(type)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except (ValueError, ArithmeticError, TypeError) as error:
            raise RecordFormatError(
                f"{value!r} is not a value of the type {type}",
                remedy="correct the record, declare the column as STRING, or set the format's 'ignore-parse-errors' to 'true'",
            ) from error

    return convert


def _reader(type: SqlType) -> Convert:
    if type.is_nested:
        return _nested_reader(type)
    if type.is_string:
        return _text
    if type.is_integer:
        return partial(_integer, bits=INTEGERS[type.name])
    if type.name == "DOUBLE":
        return float
    if type.name == "FLOAT":
        return lambda value: numbers.single(float(value))
    if type.name == "DECIMAL":
        return lambda value: numbers.decimal(Decimal(str(value)), type.precision, type.scale)
    if type.name == "BOOLEAN":
        return _boolean
    if type.name in BYTES:
        return partial(base64.b64decode, validate=True)
    parse = {"DATE": times.parse_date, "TIME": times.parse_time}.get(type.name, times.parse_timestamp)
    cut = type.precision if type.is_time_of_day else None

    def read(text: Any) -> int:
        found = parse(text) if isinstance(text, str) else None
        if found is None:
            raise _Wrong(text)
        return found if cut is None else times.truncate(found, cut)

    return read


def _nested_reader(type: SqlType) -> Convert:
    """Return a function from a JSON array or object to the value of a nested type."""
    parts = [reader(part) for _, part in type.fields]

    def array(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Wrong(value)
        return tuple(map(parts[0], value))

    def entries(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(value)
        return {parts[0](key): read(found) for key, found in value.items()}

    def row(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(value)
        return tuple([part(value.get(name)) for part, (name, _) in zip(parts, type.fields, strict=True)])

    read = parts[1] if type.name == "MAP" else partial(_integer, bits=32)
    return {"ARRAY": array, "ROW": row}.get(type.name, entries)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, separators=(",", ":"), default=str)


def _integer(value: Any, bits: int) -> int:
    found = int(value.strip() if isinstance(value, str) else value)
    if numbers.wrap(found, bits) != found or (not isinstance(value, str) and found != value):
        raise _Wrong(value)
    return found


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lower = str(value).strip().lower()
    if lower not in ("true", "false"):
        raise _Wrong(value)
    return lower == "true"


def json_writer(type: SqlType, separator: str = " ") -> Convert:
    """Return a function from a value of the type to a value that JSON has. A DECIMAL stays a Decimal.

    Args:
        separator: text between the date and the time of a timestamp.
    """
    if type.is_nested:
        return _nested_writer(type, separator)
    if type.is_time_of_day:
        suffix = "Z" if type.name == "TIMESTAMP_LTZ" else ""
        return lambda value: _trimmed(value).replace(" ", separator) + suffix
    if type.name == "DATE":
        return lambda value: times.date_of(value).isoformat()
    if type.name == "TIME":
        return times.time_text
    if type.name in BYTES:
        return lambda value: base64.b64encode(value).decode()
    return lambda value: value


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _nested_writer(type: SqlType, separator: str) -> Convert:
    parts = [_or_null(json_writer(part, separator)) for _, part in type.fields]
    if type.name == "ARRAY":
        return lambda value: list(map(parts[0], value))
    if type.name == "ROW":
        names = [name for name, _ in type.fields]
        return lambda value: {n: part(field) for n, part, field in zip(names, parts, value, strict=True)}
    if not type.key.is_string:
        raise InvalidJob(
            f"SQL: JSON cannot contain the type {type}, because its keys are not strings",
            remedy="CAST it to a MAP with keys of the type STRING, or to STRING",
        )
    write = parts[1] if type.name == "MAP" else int

    def entries(value: Any) -> Any:
        if None in value:
            raise RecordFormatError("JSON cannot contain a map with the key NULL", remedy="filter these rows before")
        return {key: write(found) for key, found in value.items()}

    return entries


def _trimmed(micros: int) -> str:
    whole, _, fraction = times.text_of(micros, 6).partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def csv_writer(type: SqlType) -> Convert:
    """Return a function from a value of the type to the text of a CSV field."""
    if type.name == "BOOLEAN":
        return lambda value: "true" if value else "false"
    if type.is_number:
        return numbers.shortest_single if type.name == "FLOAT" else numbers.text_of
    write = json_writer(type)
    return lambda value: str(write(value))


def to_python(type: SqlType, zone: str) -> Convert | None:
    """Return a function from a value of the type to the Python object that a program gets. None means that both are the same object."""
    if type.name == "TIMESTAMP":
        return times.local
    if type.name == "TIMESTAMP_LTZ":
        target = ZoneInfo(zone)
        return lambda value: (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).astimezone(target)
    if type.name == "DATE":
        return times.date_of
    if type.name == "TIME":
        return lambda value: (datetime.min + timedelta(milliseconds=value)).time()
    if type.name == "INTERVAL_MS":
        return lambda value: timedelta(milliseconds=value)
    return _nested_to_python(type, zone) if type.is_nested else None


def _nested_to_python(type: SqlType, zone: str) -> Convert:
    """Return a function to a list, a dict or a Row. A MULTISET becomes a dict of counts."""
    found = [to_python(part, zone) for _, part in type.fields]
    parts = [_same if part is None else _or_null(part) for part in found]
    if type.name == "ARRAY":
        return lambda value: list(map(parts[0], value))
    if type.name == "ROW":
        names = [name for name, _ in type.fields]
        return lambda value: Row.of([part(field) for part, field in zip(parts, value, strict=True)], names)
    second = parts[1] if type.name == "MAP" else _same
    return lambda value: {_hashable(parts[0](key)): second(field) for key, field in value.items()}


def _same(value: Any) -> Any:
    return value


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | Row) else value


def from_python(value: Any) -> Any:
    """Return the value of SQL for a Python object.

    >>> from_python(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    if isinstance(value, datetime):
        return times.micros_of(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if hasattr(value, "toordinal"):
        return times.days_of(value)
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def printed(type: SqlType) -> Convert:
    """Return a function from a value of the type to its text in the print connector, as Java prints it."""
    if type.is_nested:
        return _nested_printed(type)
    if type.is_time_of_day:
        suffix = "Z" if type.name == "TIMESTAMP_LTZ" else ""
        return lambda value: _java_time(value, always_seconds=bool(suffix)) + suffix
    if type.name in BYTES:
        return lambda value: str(list(value))
    return csv_writer(type)


def _nested_printed(type: SqlType) -> Convert:
    def of(part: SqlType) -> Convert:
        text = printed(part)
        return lambda value: "null" if value is None else text(value)

    parts = [of(part) for _, part in type.fields]
    if type.name == "ARRAY":
        return lambda value: f"[{', '.join(map(parts[0], value))}]"
    if type.name == "ROW":
        return lambda value: f"+I[{', '.join([part(field) for part, field in zip(parts, value, strict=True)])}]"
    second = parts[1] if type.name == "MAP" else str
    return lambda value: f"{{{', '.join([f'{parts[0](key)}={second(field)}' for key, field in value.items()])}}}"


def _java_time(micros: int, *, always_seconds: bool) -> str:
    whole, _, fraction = times.text_of(micros, 6).partition(".")
    text = whole.replace(" ", "T")
    if int(fraction):
        return f"{text}.{fraction[:3] if fraction.endswith('000') else fraction}"
    return text if always_seconds or not text.endswith(":00") else text[:-3]
