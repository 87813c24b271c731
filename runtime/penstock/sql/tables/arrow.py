"""The final rows of a query as an Arrow table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.types import Row, RowKind
from penstock.sql.plan.types import SqlType, type_of

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_type(type: SqlType, zone: str = "UTC") -> pa.DataType:
    """Return the Arrow type of a SQL type.

    >>> arrow_type(type_of("ARRAY<ROW<a INT, b TIMESTAMP(3)>>"))
    ListType(list<item: struct<a: int32, b: timestamp[ms]>>)
    """
    import pyarrow as pa

    simple = {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIME": pa.time32("ms"),
        "INTERVAL_MS": pa.duration("ms"),
        "INTERVAL_MONTHS": pa.int64(),
        "NULL": pa.null(),
    }
    if type.name in simple:
        return simple[type.name]
    if type.name == "DECIMAL":
        return pa.decimal128(type.precision, type.scale)
    if type.is_time_of_day:
        unit = "s" if type.precision == 0 else "ms" if type.precision <= 3 else "us"
        return pa.timestamp(unit, zone if type.name == "TIMESTAMP_LTZ" else None)
    if type.name == "ARRAY":
        return pa.list_(arrow_type(type.element, zone))
    if type.name == "ROW":
        return pa.struct([(name, arrow_type(part, zone)) for name, part in type.fields])
    if type.name == "MULTISET":
        return pa.map_(arrow_type(type.element, zone), pa.int32())
    if type.name == "MAP":
        return pa.map_(arrow_type(type.key, zone), arrow_type(type.value, zone))
    return pa.string() if type.is_string else pa.binary()


def plain(value: Any) -> Any:
    """Return an object that Arrow reads: rows as dicts, maps as lists of pairs."""
    if isinstance(value, Row):
        return {name: plain(field) for name, field in zip(value.get_field_names() or (), value, strict=True)}
    if isinstance(value, dict):
        return [(plain(key), plain(found)) for key, found in value.items()]
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def to_arrow(schema: Sequence[tuple[str, str]], changes: Iterable[Row]) -> pa.Table:
    """Return the rows that remain after all changes, in the order in which they were inserted."""
    import pyarrow as pa

    removed: Counter[str] = Counter()
    kept: list[list[Any]] = []
    for row in reversed(list(changes)):
        fields = [plain(value) for value in row]
        key = repr(fields)
        if row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
            removed[key] += 1
        elif removed[key]:
            removed[key] -= 1
        else:
            kept.append(fields)
    kept.reverse()
    types = [arrow_type(type_of(type)) for _, type in schema]
    columns = [pa.array([row[index] for row in kept], type) for index, type in enumerate(types)]
    return pa.table(columns, names=[name for name, _ in schema]) if columns else pa.table({})
