"""Readings of sensors: three fields, 57 bytes as a line of JSON. The same objects for Penstock and the bare clients."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any, TypedDict

import msgspec
import pyarrow as pa


class Reading(TypedDict):
    sensor_id: str
    ts: int
    temp: float


FIELDS = {"sensor_id": str, "ts": int, "temp": float}
SCHEMA = pa.schema({"sensor_id": pa.string(), "ts": pa.int64(), "temp": pa.float64()})
BATCH = 10_000
"""Records that a bare client takes at a time where it can; Penstock's sources and exchanges take as many."""
decode = msgspec.json.Decoder(Reading).decode
"""What bare clients parse with: the fastest there is, types checked, as Penstock's format does."""
encode = msgspec.json.Encoder().encode
_START = 1_700_000_000_000
_TIME = itemgetter("ts")


@lru_cache(maxsize=2)
def rows(count: int) -> list[dict[str, Any]]:
    """`ts` is unique.

    >>> len(encode(rows(1)[0]) + b"\\n")
    57
    """
    return [
        {"sensor_id": f"s{n % 10_000:07d}", "ts": _START + n, "temp": 10 + n % 90 + 0.25 + n % 2 / 2}
        for n in range(count)
    ]


@lru_cache(maxsize=2)
def messages(count: int) -> list[bytes]:
    """The same as JSON."""
    return [encode(row) for row in rows(count)]


def parts(records: list[Any], size: int = BATCH) -> list[list[Any]]:
    """In order, of at most so many.

    >>> parts([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [records[begin : begin + size] for begin in range(0, len(records), size)]


class Wrong(Exception):
    """Other records came than should have."""


def expect(found: object, expected: object, what: str) -> None:
    """
    Raises:
        Wrong: it is something else.
    """
    if found != expected:
        raise Wrong(f"{what}: {found}, expected {expected}")


class Tally:
    """What a reader does with its readings, Penstock's or a bare one: it adds up their times.

    >>> tally = Tally()
    >>> tally.take(rows(3))
    >>> tally.check(3)
    """

    def __init__(self) -> None:
        self.number = self._sum = 0

    def take(self, values: list[Any]) -> None:
        self.number += len(values)
        self._sum += sum(map(_TIME, values))

    def check(self, count: int) -> None:
        """
        Raises:
            Wrong: not every reading has come, or one more than once.
        """
        expect(self.number, count, "records read")
        expect(self._sum - count * _START, count * (count - 1) // 2, "sum of the times of the records read")
