"""The last records on an edge of the job graph: the question to the processes that hold the tasks, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

MAX_RECORDS = 100
MAX_CHARS = 2000
"""Maximum number of characters of a record or a key."""
LONGEST_WAIT_S = 30.0


class EdgeQuestion(msgspec.Struct, frozen=True):
    """The edge, the number of records per answer, and the time in seconds to wait for records.

    `uid`: operator that emits the records. `side_tag`: side output of the operator; None means the main output.
    """

    job_id: str
    uid: str
    side_tag: str | None = None
    count: int = 10
    seconds: float = 3.0


class EdgeRecord(msgspec.Struct, frozen=True):
    """A record as text. `seen_at`: when the record was emitted, in ms since the epoch. `timestamp`: its event time in ms.

    `subtask`: subtask of the operator that emitted it. `key`: key at the edge's `key_by` as text, None without a
    `key_by`.
    """

    seen_at: int
    subtask: int
    text: str
    timestamp: int | None = None
    key: str | None = None


class _Timed(Protocol):
    @property
    def seen_at(self) -> int: ...


T = TypeVar("T", bound=_Timed)


def within(records: list[EdgeRecord], max_bytes: int) -> list[EdgeRecord]:
    """Return the newest records that fit in `max_bytes` bytes, the oldest of them first."""
    kept: list[EdgeRecord] = []
    for record in reversed(records):
        max_bytes -= len(msgspec.msgpack.encode(record))
        if max_bytes < 0:
            break
        kept.insert(0, record)
    return kept


def newest(records: Sequence[T], count: int) -> list[T]:
    """Return the newest records, the oldest of them first.

    >>> [record.text for record in newest([EdgeRecord(3, 0, "c"), EdgeRecord(1, 1, "a"), EdgeRecord(2, 0, "b")], 2)]
    ['b', 'c']
    """
    return sorted(records, key=lambda record: record.seen_at)[-count:]
