"""`LiveRows`: the result of a running query as rows of texts, either as a table that changes or as a list of changes."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence

from penstock.common.types import Row, RowKind
from penstock.table.table_result import shown

MAX_ROWS = 100_000
"""Default number of rows that a result keeps. The oldest rows are dropped."""


class LiveRows:
    """The newest rows of a result. One thread adds changes, and others read.

    Args:
        changelog: whether to keep each change with its kind. Otherwise changes are applied, and an updated row keeps its place.
        limit: number of rows that are kept.
    """

    def __init__(self, *, changelog: bool, limit: int = MAX_ROWS) -> None:
        self._lock = threading.Lock()
        self._changelog = changelog
        self._limit = limit
        self._changes: deque[tuple[str, ...]] = deque(maxlen=limit)
        self._rows: dict[int, tuple[str, ...]] = {}
        """Rows by the number of the change that created their place."""
        self._places: dict[tuple[str, ...], list[int]] = {}
        self._vacant: int | None = None
        """Place of a row that the next change updates."""
        self.received = 0
        """Number of changes so far."""

    def add(self, row: Row) -> None:
        kind = row.get_row_kind()
        texts = tuple(shown(value) for value in row)
        with self._lock:
            self.received += 1
            if self._changelog:
                self._changes.append((str(kind), *texts))
            elif kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                self._put(texts, kind)
            else:
                self._take(texts, kind)

    def __len__(self) -> int:
        with self._lock:
            return len(self._changes if self._changelog else self._rows)

    def part(self, start: int, count: int) -> Sequence[tuple[str, ...]]:
        """Return `count` rows from a position on."""
        with self._lock:
            rows = self._changes if self._changelog else self._rows.values()
            return list(itertools.islice(rows, start, start + count))

    def _put(self, texts: tuple[str, ...], kind: RowKind) -> None:
        place = self._vacant if kind is RowKind.UPDATE_AFTER else None
        if place is None:
            place = self.received
            if len(self._rows) >= self._limit:
                self._forget(next(iter(self._rows)))
        else:
            self._vacant = None
        self._rows[place] = texts
        self._places.setdefault(texts, []).append(place)

    def _take(self, texts: tuple[str, ...], kind: RowKind) -> None:
        if self._vacant is not None:
            self._rows.pop(self._vacant, None)
            self._vacant = None
        places = self._places.get(texts)
        if not places:
            return  # a row that was dropped
        place = places.pop()
        if not places:
            del self._places[texts]
        if kind is RowKind.UPDATE_BEFORE:
            self._vacant = place
        else:
            del self._rows[place]

    def _forget(self, place: int) -> None:
        texts = self._rows.pop(place)
        places = self._places.get(texts, [])
        if place in places:
            places.remove(place)
            if not places:
                del self._places[texts]
        if place == self._vacant:
            self._vacant = None
