"""Rows of state: a snapshot freezes them, a segment stores them and a restore applies them.

One `Rows` is a set of changes of one kind to one state, by column. A `PUT` of a list or map state has the elements of
all its rows in one flat column. `counts` has the number of elements of each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.state.key_groups import keys_key_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.state.encoding.codec import Codec

DROP, DELETE, PUT, APPEND, REMOVE = range(5)
"""Kinds of changes, in the order in which a snapshot's changes are applied.

- DROP removes whole namespaces (timers: timestamps). Only `namespaces` is set.
- DELETE removes keys.
- PUT writes a value, a whole list, or entries of a map.
- APPEND writes list elements at `positions`. They replace all elements from that position on.
- REMOVE removes entries of a map by `map_keys`.
"""


class FrozenRows(Protocol):
    """The interface of rows that a segment accepts."""

    @property
    def op(self) -> int: ...

    @property
    def counts(self) -> list[int] | None: ...

    @property
    def groups(self) -> npt.NDArray[np.int64] | None: ...

    def __len__(self) -> int: ...

    def sorted_by_group(self, max_parallelism: int) -> FrozenRows:
        """Return the rows in the order of their key groups, with `groups` set."""
        ...

    def slice(self, start: int, stop: int) -> FrozenRows: ...

    def objects(self, codec: Codec) -> Rows:
        """Return the rows to encode. `codec`: codec of the values."""
        ...


@dataclass(slots=True)
class Rows:
    """Columns of one operation. All columns have one entry per row, except that `map_keys` and `values` are flat if
    `counts` is set.

    If `namespaces` is None, all rows are in the namespace None.
    """

    op: int
    keys: list[Any]
    namespaces: list[Any] | None = None
    positions: list[int] | None = None
    counts: list[int] | None = None
    map_keys: list[Any] | None = None
    values: list[Any] | None = None
    groups: npt.NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    """Key groups of the keys, in ascending order; None before the rows are sorted."""
    _offsets: list[int] | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.namespaces or ()) if self.op == DROP else len(self.keys)

    def objects(self, codec: Codec) -> Rows:
        return self

    def sorted_by_group(self, max_parallelism: int) -> Rows:
        if self.groups is not None:
            return self
        groups = keys_key_groups(self.keys, max_parallelism)
        if len(groups) < 2 or bool((groups[1:] >= groups[:-1]).all()):
            self.groups = groups
            return self
        order = np.argsort(groups, kind="stable")
        rows = self.take(order.tolist())
        rows.groups = groups[order]
        return rows

    def take(self, order: list[int]) -> Rows:
        """Return the rows at these positions, in this order."""
        counts = take(self.counts, order)
        offsets = self.offsets()
        return Rows(
            self.op,
            take(self.keys, order) or [],
            take(self.namespaces, order),
            take(self.positions, order),
            counts,
            _take_flat(self.map_keys, order, offsets),
            _take_flat(self.values, order, offsets),
        )

    def offsets(self) -> list[int] | None:
        """Return the start of each row's part of the flat columns, and the end; None means one entry per row."""
        if self._offsets is None and self.counts is not None:
            self._offsets = [0, *accumulate(self.counts)]
        return self._offsets

    def slice(self, start: int, stop: int) -> Rows:
        cut = slice(start, stop)
        offsets = self.offsets()
        flat = cut if offsets is None else slice(offsets[start], offsets[stop])
        return Rows(
            self.op,
            self.keys[cut],
            None if self.namespaces is None else self.namespaces[cut],
            None if self.positions is None else self.positions[cut],
            None if self.counts is None else self.counts[cut],
            None if self.map_keys is None else self.map_keys[flat],
            None if self.values is None else self.values[flat],
            None if self.groups is None else self.groups[cut],
        )


def cuts(rows: FrozenRows, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of about `size` elements. If the end of a key group is near, a part ends there.

    Args:
        rows: rows sorted by key group.
    """
    assert rows.groups is not None
    groups, total = rows.groups, len(rows)
    weights = None if rows.counts is None else np.cumsum(np.maximum(rows.counts, 1))
    start = 0
    while start < total:
        if weights is None:
            stop = start + size
        else:
            reached = int(weights[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(weights, reached + size, "right")))
        if stop < total:
            group_end = int(np.searchsorted(groups, groups[stop - 1], "right"))
            if group_end - stop <= size // 2:
                stop = group_end
        stop = min(stop, total)
        yield start, stop
        start = stop


CHUNK = 16_384
"""Number of elements per call into C. A longer call would keep other threads from running."""


def take(items: Sequence[Any] | None, order: list[int]) -> list[Any] | None:
    """Return the items at these positions."""
    if items is None:
        return None
    taken: list[Any] = []
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        taken.extend(itemgetter(*part)(items) if len(part) > 1 else [items[part[0]]])
    return taken


def _take_flat(items: list[Any] | None, order: list[int], offsets: list[int] | None) -> list[Any] | None:
    if items is None or offsets is None:
        return take(items, order)
    return list(chain.from_iterable(items[offsets[index] : offsets[index + 1]] for index in order))
