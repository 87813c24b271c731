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
"""Records that a bare client takes at a time if possible. Penstock's sources and exchanges take as many."""
decode = msgspec.json.Decoder(Reading).decode
"""The parser of the bare clients. It is the fastest available one and checks types, like Penstock's format."""
encode = msgspec.json.Encoder().encode
_START = 1_700_000_000_000
_TIME = itemgetter("ts")


@lru_cache(maxsize=2)
def rows(count: int) -> list[dict[str, Any]]:
    """Return this many readings. `ts` is unique.

    >>> len(encode(rows(1)[0]) + b"\\n")
    57
    """
    return [
        {"sensor_id": f"s{n % 10_000:07d}", "ts": _START + n, "temp": 10 + n % 90 + 0.25 + n % 2 / 2}
        for n in range(count)
    ]


@lru_cache(maxsize=2)
def messages(count: int) -> list[bytes]:
    """Return the readings as JSON."""
    return [encode(row) for row in rows(count)]


def parts(records: list[Any], size: int = BATCH) -> list[list[Any]]:
    """Split the records in order into parts of at most this size.

    >>> parts([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [records[begin : begin + size] for begin in range(0, len(records), size)]


class Wrong(Exception):
    """An error: the records differ from the expected ones."""


def expect(found: object, expected: object, description: str) -> None:
    """Raise an error if two values differ.

    Raises:
        Wrong: `found` is not `expected`.
    """
    if found != expected:
        raise Wrong(f"{description}: {found}, expected {expected}")


class Tally:
    """The same work that every reader does with its readings: it adds up their times.

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
        """Check the readings so far.

        Raises:
            Wrong: a reading is missing, or came more than once.
        """
        expect(self.number, count, "records read")
        expect(self._sum - count * _START, count * (count - 1) // 2, "sum of the times of the records read")
