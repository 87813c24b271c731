"""Values of SQL types outside of SQL: in JSON, in CSV, as Python objects, and as printed text."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from penstock.common.errors import RecordFormatError
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
        return base64.b64decode
    parse = {"DATE": times.parse_date, "TIME": times.parse_time}.get(type.name, times.parse_timestamp)
    cut = type.precision if type.is_time_of_day else None

    def read(text: str) -> int:
        found = parse(text)
        if found is None:
            raise _Wrong(text)
        return found if cut is None else times.truncate(found, cut)

    return read


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


def json_writer(type: SqlType) -> Convert:
    """Return a function from a value of the type to a value that JSON has."""
    if type.is_time_of_day:
        suffix = "Z" if type.name == "TIMESTAMP_LTZ" else ""
        return lambda value: _trimmed(value) + suffix
    if type.name == "DATE":
        return lambda value: times.date_of(value).isoformat()
    if type.name == "TIME":
        return times.time_text
    if type.name in BYTES:
        return lambda value: base64.b64encode(value).decode()
    return lambda value: value


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
    return None


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
    if type.is_time_of_day:
        suffix = "Z" if type.name == "TIMESTAMP_LTZ" else ""
        return lambda value: _java_time(value, always_seconds=bool(suffix)) + suffix
    if type.name in BYTES:
        return lambda value: str(list(value))
    return csv_writer(type)


def _java_time(micros: int, *, always_seconds: bool) -> str:
    whole, _, fraction = times.text_of(micros, 6).partition(".")
    text = whole.replace(" ", "T")
    if int(fraction):
        return f"{text}.{fraction[:3] if fraction.endswith('000') else fraction}"
    return text if always_seconds or not text.endswith(":00") else text[:-3]
