"""The journal of a test: what was pushed into the sources of a job, in order, for as long as the test runs.

It plays the part of Kafka: it remembers everything, sources read it from positions, and after a crash they read again what
came after the snapshot. Records are kept encoded, so that a function that changes its input does not change the journal.

A job takes records in the order in which they were pushed, also over several sources: readers may go only as far as the
*horizon*, and the harness moves it on from one run of entries of one source to the next.
"""

from __future__ import annotations

import pickle
import uuid
import weakref
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark import cloudpickle


class Kind(Enum):
    """What an entry of the journal is."""

    RECORD = "record"
    WATERMARK = "watermark"
    IDLE = "idle"
    ACTIVE = "active"
    CRASH = "crash"
    CLOSE = "close"


@dataclass(frozen=True)
class Entry:
    """
    Args:
        split: of the source; None: for all of them.
        payload: the encoded record.
        timestamp: of the record, or the watermark (ms).
    """

    source: str
    split: int | None
    kind: Kind
    payload: bytes = b""
    timestamp: int | None = None


class Journal:
    """See the module's head. Pickling one gives the same one: the copies of a source in the tasks all read it."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self.id = uuid.uuid4().hex
        self.entries: list[Entry] = [] if entries is None else entries
        self.horizon = 0
        self._read_to: dict[tuple[str, int], int] = {}
        self._crashed: set[int] = set()
        _JOURNALS[self.id] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _journal, (self.id,)

    def copy(self) -> Journal:
        """The same entries for a job of its own; marks that were met stay met."""
        copy = Journal(list(self.entries))
        copy._crashed = set(self._crashed)
        return copy

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    # --- readers ----------------------------------------------------------------------------------------------

    def read_to(self, source: str, split: int, position: int) -> None:
        """A reader has come this far."""
        self._read_to[source, split] = position

    def closed(self, source: str, split: int) -> None:
        """A reader has come to its end."""
        self._read_to.pop((source, split), None)

    def meets_crash(self, position: int) -> bool:
        """The first time a crash mark is reached."""
        if position in self._crashed:
            return False
        self._crashed.add(position)
        return True

    # --- the harness ------------------------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        """Readers are opened anew; none may read yet."""
        self.horizon = 0
        self._read_to = {}

    @property
    def has_unread(self) -> bool:
        """Readers may go on."""
        return any(position < self.horizon for position in self._read_to.values())

    def move_horizon(self) -> bool:
        """Let readers have the next entries of one source; False if everything was read."""
        start = min(self._read_to.values(), default=len(self.entries))
        if start >= len(self.entries):
            return False
        source = self.entries[start].source
        end = start + 1
        while end < len(self.entries) and self.entries[end].source == source:
            end += 1
        self.horizon = end
        return True


_JOURNALS: weakref.WeakValueDictionary[str, Journal] = weakref.WeakValueDictionary()
"""Journals of this process by id: a source travels to its tasks as a copy, its journal must not."""


def _journal(journal_id: str) -> Journal:
    return _JOURNALS[journal_id]


def encode(value: Any) -> bytes:
    """A copy of a value that nobody can change; of any class, also one made inside a test."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return bytes(cloudpickle.dumps(value))


def decode(encoded: bytes) -> Any:
    return pickle.loads(encoded)
