"""Conversion of keys to row numbers, for whole batches: a hash table in numpy arrays, with open addressing and linear probing.

In a dictionary of a million entries, each look-up of a key takes three or four cache misses, one after the other. Here
each step is done for all keys of a batch together, so that the processor fetches many cache lines at a time. This takes a
tenth of the time. Rows are numbered in the order in which keys arrive, and never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.state.encoding.packed_keys import LONGEST, WORD, PackedKeys

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.state.encoding.packed_keys import Rows, Words

_FREE = -1
_MIN_SLOTS = 1 << 10
"""Slots of a new index."""
_SLOTS_PER_KEY = 2
"""Minimum number of slots per key. An index with fewer slots doubles their number. A key is therefore in its first slot or close to it."""
_MIX = np.uint64(0xD6E8FEB86659FD93)


class KeyIndex:
    """Row numbers of packed keys, all of one kind."""

    def __init__(self) -> None:
        self.size = 0
        self._kind: type | None = None
        self._words: Words = np.zeros((_MIN_SLOTS, 1), np.uint64)
        self._slots: npt.NDArray[np.int32] = np.full(_MIN_SLOTS, _FREE, np.int32)
        # The seed is not known outside the process, so that an attacker cannot choose keys that all have the same slot.
        random = np.random.default_rng()
        self._factors: Words = random.integers(0, 1 << 63, LONGEST // WORD, np.uint64) * np.uint64(2) + np.uint64(1)

    def accepts(self, keys: PackedKeys) -> bool:
        """Return whether the keys have the kind of the index's keys."""
        return self._kind is None or self._kind is keys.kind

    def keys(self) -> PackedKeys:
        """Return all keys in the order of their rows. Later additions do not change the result."""
        return PackedKeys(self._kind or str, self._words[: self.size])

    def find(self, keys: PackedKeys) -> Rows:
        """Return the row of every key. The row of a missing key is -1. The keys must have the index's kind."""
        words = self._aligned(keys.words)
        slots = self._first_slots(words)
        rows = self._slots[slots].astype(np.int64)
        same = self._is_same(rows, words)
        found: Rows = np.where(same, rows, _FREE)
        pending = np.flatnonzero(~same & (rows != _FREE))
        last = len(self._slots) - 1
        slots, words = slots[pending], words[pending]
        while len(pending):
            slots = (slots + 1) & last
            rows = self._slots[slots].astype(np.int64)
            same = self._is_same(rows, words)
            found[pending[same]] = rows[same]
            further = np.flatnonzero(~same & (rows != _FREE))
            pending, slots, words = pending[further], slots[further], words[further]
        return found

    def add(self, keys: PackedKeys) -> Rows:
        """Add keys that are new and distinct. Return their rows."""
        words = self._aligned(keys.words)
        self._kind = keys.kind
        first, self.size = self.size, self.size + len(words)
        if self.size > len(self._words):
            larger = np.zeros((max(2 * len(self._words), self.size), self._words.shape[1]), np.uint64)
            larger[:first] = self._words[:first]
            self._words = larger
        self._words[first : self.size] = words
        rows = np.arange(first, self.size)
        if self.size * _SLOTS_PER_KEY > len(self._slots):
            least = 2 * _SLOTS_PER_KEY * self.size
            self._slots = np.full(1 << (least - 1).bit_length(), _FREE, np.int32)
            self._place(self._words[: self.size], np.arange(self.size))
        else:
            self._place(words, rows)
        return rows

    def _place(self, words: Words, rows: Rows) -> None:
        """Put the keys into slots. If several keys need the same slot, the last key gets the slot, and the other keys try the next slot."""
        slots = self._first_slots(words)
        last = len(self._slots) - 1
        while len(rows):
            is_free = self._slots[slots] == _FREE
            self._slots[slots[is_free]] = rows[is_free]
            homeless = np.flatnonzero(self._slots[slots] != rows)
            rows, slots = rows[homeless], (slots[homeless] + 1) & last

    def _first_slots(self, words: Words) -> Rows:
        hashes = words[:, 0] * self._factors[0]
        for column in range(1, words.shape[1]):
            hashes += words[:, column] * self._factors[column]
        hashes ^= hashes >> np.uint64(32)
        hashes *= _MIX
        slots: Rows = (hashes >> np.uint64(65 - len(self._slots).bit_length())).astype(np.int64)
        return slots

    def _is_same(self, rows: Rows, words: Words) -> npt.NDArray[np.bool_]:
        """Return whether each row exists and has the key."""
        same: npt.NDArray[np.bool_] = rows != _FREE
        for column in range(words.shape[1]):
            same &= self._words[rows, column] == words[:, column]
        return same

    def _aligned(self, words: Words) -> Words:
        """Return the words in the width of the index's keys, which are widened if necessary. Added zero words do not change a hash."""
        missing = self._words.shape[1] - words.shape[1]
        if missing < 0:
            self._words = np.pad(self._words, ((0, 0), (0, -missing)))
        return np.pad(words, ((0, 0), (0, missing))) if missing > 0 else words
