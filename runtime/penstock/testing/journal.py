"""The journal of a test: all entries that were pushed into the sources of a job, in order, for the whole test.

The journal replaces Kafka. It keeps all entries, and sources read it from positions. After a crash, sources read the
entries after the snapshot again. Records are encoded, so that a function that changes its input does not change the
journal.

A job takes records in the order of the pushes, also over several sources. Readers may only read up to the *horizon*. In
each step, the harness moves the horizon past the next entries that all belong to the same source.
"""

from __future__ import annotations

import pickle
import uuid
import weakref
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.taskmanager.code.pickler import dumps


class Kind(Enum):
    """The kind of a journal entry."""

    RECORD = "record"
    WATERMARK = "watermark"
    IDLE = "idle"
    ACTIVE = "active"
    CRASH = "crash"
    CLOSE = "close"


@dataclass(frozen=True)
class Entry:
    """An entry of the journal.

    Args:
        split: split of the source, or None for all splits.
        payload: the encoded record.
        timestamp: timestamp of the record, or the watermark (ms).
    """

    source: str
    split: int | None
    kind: Kind
    payload: bytes = b""
    timestamp: int | None = None


class Journal:
    """A journal of entries.

    A pickled journal is unpickled as the same object, so all copies of a source read one journal.
    """

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
        """Return a journal with the same entries for a separate job. Crash marks that were reached remain reached."""
        copy = Journal(list(self.entries))
        copy._crashed = set(self._crashed)
        return copy

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    # --- readers ----------------------------------------------------------------------------------------------

    def read_to(self, source: str, split: int, position: int) -> None:
        """Set the position of a reader."""
        self._read_to[source, split] = position

    def closed(self, source: str, split: int) -> None:
        """Remove a reader that has reached its end."""
        self._read_to.pop((source, split), None)

    def meets_crash(self, position: int) -> bool:
        """Return whether the crash mark is reached for the first time."""
        if position in self._crashed:
            return False
        self._crashed.add(position)
        return True

    # --- the harness ------------------------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        """Remove the readers, because the new attempt opens them again.

        Readers may not read until the horizon moves.
        """
        self.horizon = 0
        self._read_to = {}

    @property
    def has_unread(self) -> bool:
        """Return whether a reader has entries left before the horizon."""
        return any(position < self.horizon for position in self._read_to.values())

    def move_horizon(self) -> bool:
        """Move the horizon past the next entries of one source. Return False if everything was read."""
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
"""Journals of this process by id. A source travels to its tasks as a copy, but its journal must not be copied."""


def _journal(journal_id: str) -> Journal:
    return _JOURNALS[journal_id]


def encode(value: Any) -> bytes:
    """Return an immutable copy of a value. The value may have any class, even a class defined inside a test."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps(value)


def decode(encoded: bytes) -> Any:
    return pickle.loads(encoded)
