"""Which transactions a snapshot has seen, and which rows were read in which snapshot.

A snapshot is `xmin:xmax:running`, as `pg_current_snapshot()` writes it: it sees what was committed by transactions below `xmax`, but for those that were running.
That, and no position in the log, says exactly whether a change is among the rows that were read.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

Key = Any
"""An int, or a list of texts, which compare as bytes do (collation "C")."""


class Snapshot(NamedTuple):
    """
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
        """Args: xid: of 32 bits, as the log has it; the one nearest to the snapshot is meant.

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
    """Rows above `low` and up to `high`, both None at the ends of the table. `parts`: up to which key in which snapshot."""

    low: Key
    high: Key
    parts: tuple[tuple[Key, Snapshot], ...]


class ReadRows:
    """The rows of a table that were read before its changes."""

    def __init__(self, ranges: Sequence[ReadRange]) -> None:
        self._ranges = sorted(ranges, key=lambda r: (r.low is not None, order_of(r.low)))
        self._highs = [order_of(r.high) for r in self._ranges[:-1]]

    @classmethod
    def of(cls, ranges: Sequence[Sequence[Any]]) -> ReadRows:
        """Of what a split says of them: [low, high, [[up to, snapshot], …]]."""
        return cls(
            [
                ReadRange(low, high, tuple((up_to, Snapshot.parse(text)) for up_to, text in parts))
                for low, high, parts in ranges
            ]
        )

    def saw(self, xid: int, key: Key) -> bool:
        """Whether a transaction's change of the row is among the rows that were read."""
        if not self._ranges:
            return False
        found = self._ranges[bisect.bisect_left(self._highs, order_of(key))]
        for up_to, snapshot in found.parts:
            if up_to is None or order_of(key) <= order_of(up_to):
                return snapshot.sees(xid)
        return False

    def saw_everywhere(self, xid: int) -> bool | None:
        """Of a transaction that changed all rows; None: some ranges were read before it and others after it."""
        told = {snapshot.sees(xid) for found in self._ranges for _, snapshot in found.parts}
        return told.pop() if len(told) == 1 else (None if told else False)


def order_of(key: Key) -> Any:
    """What keys are compared by."""
    return tuple(part.encode() for part in key) if isinstance(key, list | tuple) else (0 if key is None else key)
