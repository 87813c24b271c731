"""Types and values in the JSON of Flink's SQL gateway."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from penstock.common.types import Row
from penstock.sql.plan.types import SqlType

_MAX_LENGTH = 2_147_483_647
_NAMES = {
    "TIMESTAMP": "TIMESTAMP_WITHOUT_TIME_ZONE",
    "TIMESTAMP_LTZ": "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    "TIME": "TIME_WITHOUT_TIME_ZONE",
    "INTERVAL_MS": "INTERVAL_DAY_TIME",
    "INTERVAL_MONTHS": "INTERVAL_YEAR_MONTH",
}


def logical_type(type: SqlType) -> dict[str, Any]:
    """Return a type as Flink's gateway describes it.

    >>> logical_type(SqlType("DECIMAL", False, 10, 2))
    {'type': 'DECIMAL', 'nullable': False, 'precision': 10, 'scale': 2}
    """
    found: dict[str, Any] = {"type": _NAMES.get(type.name, type.name), "nullable": type.nullable}
    if type.name == "DECIMAL":
        found |= {"precision": type.precision, "scale": type.scale}
    elif type.is_string or type.name in ("BINARY", "VARBINARY"):
        found["length"] = type.precision or _MAX_LENGTH
    elif type.is_time_of_day or type.name == "TIME":
        found["precision"] = type.precision
    elif type.name == "MAP":
        found |= {"keyType": logical_type(type.key), "valueType": logical_type(type.value)}
    elif type.name == "ROW":
        found["fields"] = [{"name": name, "fieldType": logical_type(field)} for name, field in type.fields]
    elif type.is_nested:
        found["elementType"] = logical_type(type.element)
    return found


def type_of_values(values: list[Any]) -> SqlType:
    """Return the type of a column of a statement that runs no job.

    >>> str(type_of_values([1, None])), str(type_of_values(["a", True]))
    ('BIGINT', 'VARCHAR')
    """
    kinds = {type(value) for value in values if value is not None}
    return SqlType({frozenset({bool}): "BOOLEAN", frozenset({int}): "BIGINT"}.get(frozenset(kinds), "VARCHAR"))


def json_value(value: Any) -> Any:
    """Return a value of a result for `dumps`. Times have the form of ISO 8601.

    >>> json_value([datetime(2020, 1, 2), b"a", float("nan")])
    ['2020-01-02T00:00:00', 'YQ==', 'NaN']
    """
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, Row):
        return (
            dict(zip(value._fields, map(json_value, value), strict=True))
            if value._fields
            else [*map(json_value, value)]
        )
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return value


def dumps(value: Any) -> str:
    """Return JSON in which a Decimal is a number with all its digits.

    >>> dumps({"a": [Decimal("1.10"), None, "b"]})
    '{"a":[1.10,null,"b"]}'
    """
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(key))}:{dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dumps, value)) + "]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
