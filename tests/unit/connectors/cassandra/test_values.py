"""A value is read back unchanged, or refused. No value is truncated, overflows or changes its type."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cassandra import cqltypes
from cassandra.util import Date, Duration, Time

from penstock.connectors.cassandra.scalars import Misfit
from penstock.connectors.cassandra.values import Parameters

PROTOCOL = 4
EAST = datetime.timezone(datetime.timedelta(hours=5))
NUMBERS = ("tinyint", "smallint", "int", "bigint", "varint", "float", "double", "decimal", "timestamp")


class Color(str, enum.Enum):  # noqa: UP042 - whose str() is its name
    RED = "r"


class Size(enum.IntEnum):
    TWO = 2


class Price(float):
    def __str__(self) -> str:
        return "1.00 EUR"


KINDS = {
    "boolean": cqltypes.BooleanType,
    "text": cqltypes.UTF8Type,
    "tinyint": cqltypes.ByteType,
    "smallint": cqltypes.ShortType,
    "int": cqltypes.Int32Type,
    "bigint": cqltypes.LongType,
    "varint": cqltypes.IntegerType,
    "float": cqltypes.FloatType,
    "double": cqltypes.DoubleType,
    "decimal": cqltypes.DecimalType,
    "timestamp": cqltypes.DateType,
    "date": cqltypes.SimpleDateType,
    "time": cqltypes.TimeType,
    "duration": cqltypes.DurationType,
    "inet": cqltypes.InetAddressType,
    "map": cqltypes.MapType.apply_parameters([cqltypes.UTF8Type, cqltypes.UTF8Type]),
    "list": cqltypes.ListType.apply_parameters([cqltypes.UTF8Type]),
    "vector": cqltypes.VectorType.apply_parameters([cqltypes.FloatType, 2], None),
}


def encoded(kind: str, value: Any) -> Any:
    column = SimpleNamespace(name="c", type=KINDS[kind])
    prepared = SimpleNamespace(column_metadata=[column], routing_key_indexes=(), protocol_version=PROTOCOL)
    return Parameters(prepared).encode([value])[0]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("text", Color.RED, "r"),
        ("text", np.str_("x"), "x"),
        ("int", Size.TWO, 2),
        ("bigint", np.uint8(5), 5),
        ("timestamp", 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
        ("timestamp", np.datetime64("1969-12-31T23:59:59.9999"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
        ("timestamp", np.datetime64("1968-03"), datetime.datetime(1968, 3, 1)),
        ("timestamp", np.datetime64("2024"), datetime.datetime(2024, 1, 1)),
        ("date", np.datetime64("2020-01-01T00:00"), Date("2020-01-01")),
        ("date", np.datetime64("2020-02"), Date("2020-02-01")),
        ("time", "10:00:00.000001", Time("10:00:00.000001")),
        ("duration", np.timedelta64(-3, "h"), Duration(0, 0, -3 * 3_600 * 10**9)),
        ("duration", np.timedelta64(7_000, "ps"), Duration(0, 0, 7)),
        ("duration", datetime.timedelta(days=2), Duration(0, 0, 2 * 86_400 * 10**9)),
        ("inet", "::1", "::1"),
        ("inet", ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
        ("double", decimal.Decimal("0.5"), 0.5),
        ("double", np.int64(3), 3.0),
        ("double", np.float16(0.5), 0.5),
        ("double", float("inf"), float("inf")),
        ("decimal", Price(0.1), decimal.Decimal("0.1")),
        ("decimal", np.float32(0.1), decimal.Decimal("0.1")),
        ("decimal", np.float64(0.1), decimal.Decimal("0.1")),
        ("decimal", Size.TWO, decimal.Decimal(2)),
        ("boolean", np.True_, True),
        ("map", {"a": "b"}, {"a": "b"}),
        ("vector", [1.0, 2.0], [1.0, 2.0]),
    ],
)
def test_an_accepted_value_is_read_back_unchanged(kind: str, value: Any, wanted: Any) -> None:
    assert KINDS[kind].deserialize(encoded(kind, value), PROTOCOL) == wanted


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        *((kind, value, "") for kind in NUMBERS for value in (True, np.True_, np.ma.masked)),
        *((kind, np.timedelta64(5, "ns"), "") for kind in NUMBERS),
        *((kind, np.datetime64("2020-01-01"), "") for kind in NUMBERS if kind != "timestamp"),
        ("int", np.ma.array(5, mask=True), ""),
        ("double", np.complex128(1 + 2j), ""),
        ("double", "1", ""),
        ("double", decimal.Decimal("1e400"), "too large"),
        ("map", {"a": None}, "a map must not contain None"),
        ("map", {None: "a"}, "a map must not contain None"),
        ("map", {"a": np.datetime64("NaT")}, "a map must not contain None"),
        ("vector", [1.0, None], "a vector must not contain None"),
        ("list", ["a", None], "a list must not contain None"),
        ("timestamp", np.datetime64(2**62, "s"), ""),
        ("timestamp", np.datetime64(2**62, "Y"), ""),
        ("date", np.datetime64("2020-01-01T12:34"), "time of day"),
        ("date", np.datetime64(2**62, "M"), ""),
        ("date", np.datetime64(2**31, "D"), ""),
        ("time", datetime.time(10, tzinfo=EAST), "not have a zone"),
        ("time", "10:00:00+05:00", "not have a zone"),
        ("time", "10:00:00.1234567", "six decimal places"),
        ("duration", np.timedelta64(1, "M"), "no fixed length"),
        ("duration", np.timedelta64(1, "Y"), "no fixed length"),
        ("duration", np.timedelta64(10**6, "D"), ""),
        ("duration", np.timedelta64(1, "ps"), "whole nanoseconds"),
        ("duration", datetime.timedelta(days=10**6), ""),
        ("inet", 1, ""),
        ("inet", True, ""),
        ("inet", b"abcd", ""),
    ],
)
def test_a_value_that_would_change_is_refused(kind: str, value: Any, reason: str) -> None:
    with pytest.raises(Misfit, match=f"column 'c' is .*{reason}"):
        encoded(kind, value)
