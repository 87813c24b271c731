"""A cache of state that lookups have read from checkpoints, which never change. It is bounded and evicts the least recently used state."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from penstock.checkpoint.savepoint.contents import Entry as StoredEntry
from penstock.checkpoint.savepoint.contents import OperatorContents
from penstock.checkpoint.savepoint.entries import columns

MAX_BYTES = 32 * 2**20
"""Maximum size of cached state as JSON: about 100,000 entries of 60 bytes. In memory, they take several times as much."""
_OF_GROUP, _OF_ENTRY = 500, 250
"""Bytes that a key group and an entry take in addition to their content."""
MAX_OPERATORS = 16
SAMPLE = 100
"""Number of entries that are read to find the type of keys."""
_SAMPLE = -1
"""Key of a sample in the cache, in place of a key group."""

Entry = Mapping[str, object]


class StateCache:
    """Cache of state. Thread-safe. Two threads that request the same state at once may both read it.

    Args:
        max_bytes: maximum size of the cache. A larger key group is read again each time.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._contents: OrderedDict[tuple[str, str], OperatorContents] = OrderedDict()
        self._groups: OrderedDict[tuple[str, str, str, int], tuple[Sequence[Entry], int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def contents(self, path: str, uid: str, options: Mapping[str, Any]) -> OperatorContents:
        """Return the contents of an operator in the checkpoint at this path. Raises the errors of `OperatorContents`."""
        with self._lock:
            found = self._contents.get((path, uid))
            if found is not None:
                self._contents.move_to_end((path, uid))
                return found
        created = OperatorContents(path, uid, options)
        with self._lock:
            self._contents[path, uid] = created
            while len(self._contents) > MAX_OPERATORS:
                self._contents.popitem(last=False)
        return created

    def group(self, path: str, contents: OperatorContents, name: str, group: int) -> Sequence[Entry]:
        """Return the entries of one key group of keyed state. Raises the errors of `OperatorContents.rows`."""
        return self._cached((path, contents.uid, name, group), lambda: contents.rows_of_group(name, group))

    def sample(self, path: str, contents: OperatorContents, name: str) -> Sequence[Entry]:
        """Return some entries of a state, which show the type of its keys. Raises the errors of `OperatorContents.rows`."""
        return self._cached((path, contents.uid, name, _SAMPLE), lambda: islice(contents.rows(name), SAMPLE))

    def _cached(self, key: tuple[str, str, str, int], read: Callable[[], Iterable[StoredEntry]]) -> Sequence[Entry]:
        with self._lock:
            found = self._groups.get(key)
            if found is not None:
                self._groups.move_to_end(key)
                return found[0]
        entries = [columns(row) for row in read()]
        size = _OF_GROUP + _OF_ENTRY * len(entries) + len(str(entries))
        with self._lock:
            if key not in self._groups and size <= self._max_bytes:
                self._groups[key] = entries, size
                self._size += size
            while self._size > self._max_bytes:
                _, (_, oldest) = self._groups.popitem(last=False)
                self._size -= oldest
        return entries
