"""Values of libraries are written to JSON lines as plain values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pydantic
import pytest

from penstock.connectors.formats.encode import JsonLinesEncoder


class Stamp(datetime):
    """A fake of pandas' Timestamp."""

    nanosecond = 0


class Finer(Stamp):
    nanosecond = 7

    def isoformat(self, *args: Any, **kwargs: Any) -> str:
        return f"{super().isoformat()}.000000007"


class NotATime(datetime):
    """A fake of pandas' NaT."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


class Day(date): ...


class Span(timedelta): ...


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(1.5), b"1.5"),
        (np.bool_(True), b"true"),
        (np.array([1, 2]), b"[1,2]"),
        (np.datetime64("2013-01-01T00:00:00", "ns"), b'"2013-01-01T00:00:00"'),
        (np.datetime64("2013-01-01T00:00:00.5", "ms"), b'"2013-01-01T00:00:00.500000"'),
        (np.datetime64("2013-01-01T00:00:00.000000001"), b'"2013-01-01T00:00:00.000000001"'),
        (np.datetime64("2013-01-01"), b'"2013-01-01"'),
        (np.datetime64("99999-01-01", "s"), b'"99999-01-01T00:00:00"'),
        (np.datetime64("NaT"), b"null"),
        (np.array(["2013-01-01", "NaT"], "M8[ns]"), b'["2013-01-01T00:00:00",null]'),
        (np.timedelta64(1_500, "ms"), b'"PT1.5S"'),
        (np.timedelta64(1_000, "ns"), b'"PT0.000001S"'),
        (np.timedelta64(7, "ns"), b'"7 nanoseconds"'),
        (np.timedelta64("NaT"), b"null"),
        (Stamp(2013, 1, 1), b'"2013-01-01T00:00:00"'),
        (Stamp(2013, 1, 1, tzinfo=UTC), b'"2013-01-01T00:00:00Z"'),
        (Finer(2013, 1, 1), b'"2013-01-01T00:00:00.000000007"'),
        (NotATime(2013, 1, 1), b"null"),
        (Day(2013, 1, 1), b'"2013-01-01"'),
        (Span(seconds=90), b'"PT90S"'),
    ],
    ids=repr,
)
def test_values_of_libraries_are_written_as_plain_values(value: Any, expected: bytes) -> None:
    assert JsonLinesEncoder().encode({"a": value}) == b'{"a":' + expected + b"}\n"


class Place(pydantic.BaseModel):
    name: str
    at: datetime


class Reading(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    place: Place
    values: list[np.int64]
    price: Decimal | None = None


def test_pydantic_models_become_objects_at_any_depth() -> None:
    place = Place(name="ä", at=datetime(2026, 1, 1, tzinfo=UTC))
    reading = Reading(place=place, values=[np.int64(1)], price=Decimal("1.10"))
    expected = '{"place":{"name":"ä","at":"2026-01-01T00:00:00Z"},"values":[1],"price":1.10}'.encode()
    assert JsonLinesEncoder().encode_batch([reading, {"of": [reading]}]) == expected + b'\n{"of":[' + expected + b"]}\n"
