"""What look-ups have read of checkpoints, for the next ones: a checkpoint never changes. Bounded, the longest unused goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from penstock.checkpoint.savepoint.contents import Entry as StoredEntry
from penstock.checkpoint.savepoint.contents import OperatorContents
from penstock.checkpoint.savepoint.entries import columns

MOST_BYTES = 32 * 2**20
"""Of state, as JSON: some 100,000 entries of 60 bytes, which take up a multiple of that here."""
_OF_GROUP, _OF_ENTRY = 500, 250
"""Bytes that a key group, and an entry, take up beside that."""
MOST_OPERATORS = 16
SAMPLE = 100
"""Entries whose keys tell of what type keys are."""
_SAMPLE = -1
"""In the place of their key group."""

Entry = Mapping[str, object]


class StateCache:
    """Thread-safe; two who ask for the same at once may both read it.

    Args:
        most_bytes: that are kept; a key group with more than that is read anew each time.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._contents: OrderedDict[tuple[str, str], OperatorContents] = OrderedDict()
        self._groups: OrderedDict[tuple[str, str, str, int], tuple[Sequence[Entry], int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def contents(self, path: str, uid: str, options: Mapping[str, Any]) -> OperatorContents:
        """Of an operator in the checkpoint at this path. Raises as `OperatorContents`."""
        with self._lock:
            found = self._contents.get((path, uid))
            if found is not None:
                self._contents.move_to_end((path, uid))
                return found
        made = OperatorContents(path, uid, options)
        with self._lock:
            self._contents[path, uid] = made
            while len(self._contents) > MOST_OPERATORS:
                self._contents.popitem(last=False)
        return made

    def group(self, path: str, contents: OperatorContents, name: str, group: int) -> Sequence[Entry]:
        """Entries of one key group of keyed state. Raises as `OperatorContents.rows`."""
        return self._kept((path, contents.uid, name, group), lambda: contents.rows_of_group(name, group))

    def sample(self, path: str, contents: OperatorContents, name: str) -> Sequence[Entry]:
        """Some entries of a state, which tell of what type keys are. Raises as `OperatorContents.rows`."""
        return self._kept((path, contents.uid, name, _SAMPLE), lambda: islice(contents.rows(name), SAMPLE))

    def _kept(self, key: tuple[str, str, str, int], read: Callable[[], Iterable[StoredEntry]]) -> Sequence[Entry]:
        with self._lock:
            found = self._groups.get(key)
            if found is not None:
                self._groups.move_to_end(key)
                return found[0]
        entries = [columns(row) for row in read()]
        size = _OF_GROUP + _OF_ENTRY * len(entries) + len(str(entries))
        with self._lock:
            if key not in self._groups and size <= self._most:
                self._groups[key] = entries, size
                self._size += size
            while self._size > self._most:
                _, (_, oldest) = self._groups.popitem(last=False)
                self._size -= oldest
        return entries
