"""Conversion of values to BSON, and errors for values that BSON cannot represent."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import bson
import msgspec
import numpy as np
import pydantic
import pytest

from penstock.common.types import Row
from penstock.connectors.mongodb.documents import as_mapping, encoded, record_options

TOKEN = UUID("9ee80d32-1a6c-4b3e-8b1e-6cfd6b2d1a77")


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    a: int
    b: Any


@dataclasses.dataclass
class Station:
    name: str
    at: Any


class Reading(msgspec.Struct):
    celsius: float


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="_id")
    day: date


class NoTime(datetime):
    """A fake of pandas' NaT, which is a datetime but has no time."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def utcoffset(self) -> timedelta:
        raise ValueError("NaT has no offset")


def stored(value: Any) -> Any:
    return bson.decode(encoded({"v": value}), codec_options=record_options())["v"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.str_("ä"), "ä"),
        (np.bytes_(b"x"), b"x"),
        (np.datetime64("2013-07-01T00:00:00.123456789"), datetime(2013, 7, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        (np.datetime64("NaT"), None),
        (np.arange(2), [0, 1]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([[1.5], [2.5]]), [[1.5], [2.5]]),
        (Decimal("1.50"), Decimal("1.50")),
        (Decimal("NaN"), "NaN"),
        (date(2013, 7, 1), datetime(2013, 7, 1, tzinfo=UTC)),
        (datetime(2013, 7, 1, 0, 0, 0, 1999), datetime(2013, 7, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        (datetime(2013, 7, 1, 2, tzinfo=UTC), datetime(2013, 7, 1, 2, tzinfo=UTC)),
        (NoTime(2013, 7, 1), None),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (TOKEN, TOKEN),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ({3}, [3]),
        (Pair(1, Decimal(2)), [1, Decimal(2)]),
        (Pair(1, 2), [1, 2]),
        (Station("JFK", np.int32(4)), {"name": "JFK", "at": 4}),
        (Reading(1.5), {"celsius": 1.5}),
        (Row(1, 2), [1, 2]),
        (Row(a=1, b=np.int8(2)), {"a": 1, "b": 2}),
        (Model(_id=1, day=date(2013, 7, 1)), {"_id": 1, "day": datetime(2013, 7, 1, tzinfo=UTC)}),
        (bson.ObjectId("6" * 24), "6" * 24),
        (bson.Int64(5), 5),
        (2**63 - 1, 2**63 - 1),
        ([{"a": [np.int8(1)]}], [{"a": [1]}]),
        ("a\0b", "a\0b"),
        ({"a.b": 1, "$c": 2, "": 3}, {"a.b": 1, "$c": 2, "": 3}),
    ],
)
def test_values_are_stored_in_their_bson_type(value: Any, expected: Any) -> None:
    found = stored(value)
    assert (str(found) if isinstance(found, Decimal) and found.is_nan() else found) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, r"v is the number 9223372036854775808, but BSON.s integers have 8 bytes"),
        ([{"x": -(2**64)}], r"v\[0\]\.x is the number"),
        (np.uint64(2**64 - 1), "v is the number"),
        ("\ud800", "lone surrogate"),
        (Decimal("1." + "1" * 40), "decimals have 34 digits"),
        (np.timedelta64(1, "s"), "v is a timedelta64, which has no BSON representation"),
        (timedelta(1), "v is a timedelta"),
        (time(1), "v is a time"),
        (1 + 2j, "v is a complex"),
        (object(), "v is a object"),
        ({1: 2}, "v has the key 1, but BSON.s keys are text"),
        ({"a\0": 1}, "NULL"),
    ],
)
def test_a_value_that_cannot_be_written_is_named(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoded({"v": value})


def test_a_record_without_field_names_is_refused() -> None:
    assert as_mapping(5) is None
    assert as_mapping((1, 2)) is None
    assert as_mapping(Row(1, 2)) is None
    assert as_mapping(Station) is None
