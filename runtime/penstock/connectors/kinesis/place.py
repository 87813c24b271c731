"""The records of a shard, and the position of a reader in it."""

from __future__ import annotations

from typing import Any, NamedTuple

WHOLE = -1
"""Value of `sub` for a completely read record."""


class Record(NamedTuple):
    sequence: str
    key: str
    time: int
    """Arrival time at the stream, in ms."""
    data: bytes
    sub: int = 0
    is_last: bool = True
    """Whether this is the last user record of its aggregated record."""

    def value(self) -> bytes:
        return self.data


class Place(NamedTuple):
    after: str
    """Sequence number of the last record that was read. "" if no record was read."""
    sub: int
    """Index of the last user record read from an aggregated record. `WHOLE`: the record was read completely."""
    read_to: int
    """Time in ms up to which all records of the shard were read."""

    @staticmethod
    def of(position: Any, since: int) -> Place:
        """Return the place of a reader from the position in a checkpoint.

        Args:
            position: the position in a checkpoint. None means that nothing of the shard was read.
            since: the first `read_to` of a shard, in ms. Dropped records that arrived before this time do not count as lost.
        """
        if position is None:
            return Place("", WHOLE, since)
        return Place(position["after"], position["sub"], position["read_to"])

    def position(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        return {"after": self.after, "sub": self.sub, "read_to": self.read_to}
