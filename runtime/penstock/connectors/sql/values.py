"""Conversion of values between Arrow columns and the driver of a database."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import RecordFormatError
from penstock.connectors.postgres.values import check_json, check_text

_UTC = datetime.UTC


def check_values(columns: pa.RecordBatch, database: str) -> None:
    """Check that the database can store the values, before they are buffered.

    Raises:
        RecordFormatError: a driver of this database would refuse or change a value. The error names the field.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_nested(field.type) and "binary" in str(field.type):
            raise _no_json(f"field {field.name!r} has bytes within {field.type}")
        if database == "postgresql":
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                check_text(column, field.name)
            elif pa.types.is_nested(field.type):
                check_json(for_driver(column, database), field.name)
        if pa.types.is_floating(field.type) and database != "postgresql":
            strange = pc.is_nan(column) if database == "sqlite" else pc.invert(pc.is_finite(column))
            if pc.any(strange).as_py():
                raise RecordFormatError(
                    f"field {field.name!r} has a value that is not a finite number, which {database} cannot store",
                    remedy="filter such records, or map the value to None, before the sink",
                )


def for_driver(column: pa.Array, database: str) -> list[Any]:
    """Return the values of a column for the driver: structs, maps and lists as JSON, times with a time zone in UTC.

    >>> for_driver(pa.array([{"n": 1}, None]), "mysql")
    ['{"n":1}', None]
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy") if pa.types.is_map(kind) else column.to_pylist()
    if pa.types.is_nested(kind):
        return _each(values, _json)
    if database == "postgresql":
        return values
    if pa.types.is_timestamp(kind):
        return _each(values, _utc_text if database == "sqlite" else _utc)
    if database == "sqlite":
        if pa.types.is_date(kind) or pa.types.is_time(kind):
            return _each(values, lambda value: value.isoformat())
        if pa.types.is_decimal(kind):
            return _each(values, str)
    return values


def _each(values: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=_in_json, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        raise _no_json(f"the value is {value!r}") from error


def _in_json(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError


def _no_json(problem: str) -> RecordFormatError:
    return RecordFormatError(
        f"{problem}, which JSON cannot represent. Nested fields are written as JSON",
        remedy="map it to text and numbers before the sink",
    )


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(_UTC).replace(tzinfo=None)


def _utc_text(value: datetime.datetime) -> str:
    return _utc(value).isoformat(sep=" ")


def plain(value: Any, database: str) -> Any:
    """Convert a value that has no declared type for the driver. Values of numpy and pandas become plain Python
    values."""
    if value is None or type(value) in (int, str, bytes, bool):
        return value
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if hasattr(value, "to_pydatetime"):  # pandas.Timestamp, a subclass of datetime
        value = value.to_pydatetime(warn=False)
    elif type(value).__name__ == "datetime64":  # numpy's type, which may have nanoseconds
        value = value.astype("datetime64[us]").tolist()
    elif hasattr(value, "tolist"):  # numpy's scalars and arrays
        value = value.tolist()
    if isinstance(value, float) and value != value and database != "postgresql":
        raise RecordFormatError(f"{database} cannot store the value {value!r}", remedy="map it to None before the sink")
    if isinstance(value, datetime.datetime) and database != "postgresql":
        return _utc_text(value) if database == "sqlite" else _utc(value)
    if isinstance(value, datetime.date | datetime.time) and database == "sqlite":
        return value.isoformat()
    if isinstance(value, decimal.Decimal) and database == "sqlite":
        return str(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict | list | tuple) and not (isinstance(value, list) and database == "postgresql"):
        return _json(value)
    return value


def from_driver(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> list[tuple[Any, ...]]:
    """Return rows with values of the declared types. Drivers may return times as text, booleans as numbers, and JSON as text."""
    lists = list(zip(*rows, strict=True)) or [()] * len(schema)
    converted = [
        list(column) if (convert := _conversion(field.type)) is None else _each(list(column), convert)
        for column, field in zip(lists, schema, strict=True)
    ]
    return list(zip(*converted, strict=True))


def _conversion(kind: pa.DataType) -> Callable[[Any], Any] | None:
    for check, convert in _CONVERSIONS:
        if check(kind):
            return convert
    return None


def _integer(value: Any) -> Any:
    return int(value) if isinstance(value, decimal.Decimal) and value == int(value) else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else str(value)


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))


def _timestamp(value: Any) -> Any:
    return datetime.datetime.fromisoformat(value) if isinstance(value, str) else value


def _date(value: Any) -> Any:
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    return value.date() if isinstance(value, datetime.datetime) else value


def _time(value: Any) -> Any:
    if isinstance(value, str):
        return datetime.time.fromisoformat(value)
    if isinstance(value, datetime.timedelta) and datetime.timedelta() <= value < datetime.timedelta(days=1):
        return (datetime.datetime.min + value).time()
    return value


def _nested(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str | bytes) else value


_CONVERSIONS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (
        pa.types.is_boolean,
        lambda value: (
            value
            if isinstance(value, bool)
            else bool(int.from_bytes(value))
            if isinstance(value, bytes)
            else bool(value)
        ),
    ),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_time, _time),
    (pa.types.is_nested, _nested),
)
