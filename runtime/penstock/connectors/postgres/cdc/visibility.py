"""Visibility of transactions in snapshots, and the snapshot in which each row was read.

A snapshot is `xmin:xmax:running`, as `pg_current_snapshot()` writes it. It sees the committed transactions below `xmax`, except those that
were running. Only the snapshot tells exactly whether the rows that were read contain a change. A position in the log cannot tell this.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

Key = Any
"""The key of a row: an int, or a list of texts, which compare byte by byte (collation "C")."""


class Snapshot(NamedTuple):
    """A snapshot of the database.

    >>> snapshot = Snapshot.parse("10:20:10,14")
    >>> [snapshot.sees(xid) for xid in (9, 10, 11, 14, 19, 20)]
    [True, False, True, False, True, False]
    """

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Return whether the snapshot sees a transaction.

        Args:
            xid: 32-bit id from the log. It stands for the full id nearest to the snapshot.

        >>> Snapshot.parse("4294967300:4294967310:").sees(5), Snapshot.parse("4294967297:4294967297:").sees(2**32 - 1)
        (True, True)
        """
        whole = (self.xmax & ~0xFFFFFFFF) | xid
        if whole - self.xmax > 1 << 31:
            whole -= 1 << 32
        elif self.xmax - whole > 1 << 31:
            whole += 1 << 32
        return whole < self.xmax and whole not in self.running


class ReadRange(NamedTuple):
    """Rows above `low` and up to `high`. A bound is None at an end of the table."""

    low: Key
    high: Key
    parts: tuple[tuple[Key, Snapshot], ...]
    """Parts of the range: the last key of each part, and the snapshot in which the part was read."""


class ReadRows:
    """The rows of a table that were read before its changes."""

    def __init__(self, ranges: Sequence[ReadRange]) -> None:
        self._ranges = sorted(ranges, key=lambda r: (r.low is not None, order_of(r.low)))
        self._highs = [order_of(r.high) for r in self._ranges[:-1]]

    @classmethod
    def of(cls, ranges: Sequence[Sequence[Any]]) -> ReadRows:
        """Create the object from the ranges in a split. Each range is [low, high, [[up to, snapshot], …]]."""
        return cls(
            [
                ReadRange(low, high, tuple((up_to, Snapshot.parse(text)) for up_to, text in parts))
                for low, high, parts in ranges
            ]
        )

    def saw(self, xid: int, key: Key) -> bool:
        """Return whether the rows that were read contain the transaction's change of the row with this key."""
        if not self._ranges:
            return False
        found = self._ranges[bisect.bisect_left(self._highs, order_of(key))]
        for up_to, snapshot in found.parts:
            if up_to is None or order_of(key) <= order_of(up_to):
                return snapshot.sees(xid)
        return False

    def saw_everywhere(self, xid: int) -> bool | None:
        """Return whether all ranges contain the changes of a transaction, or None if only some of them do."""
        visible = {snapshot.sees(xid) for found in self._ranges for _, snapshot in found.parts}
        return visible.pop() if len(visible) == 1 else (None if visible else False)


def order_of(key: Key) -> Any:
    """Return the sort key of a key."""
    return tuple(part.encode() for part in key) if isinstance(key, list | tuple) else (0 if key is None else key)
