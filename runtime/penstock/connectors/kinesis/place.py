"""Where in a shard a reader is."""

from __future__ import annotations

from typing import Any, NamedTuple

WHOLE = -1
"""Of `sub`."""


class Place(NamedTuple):
    after: str
    """Number of the last record that was read; "": none was."""
    sub: int
    """The how manieth of those in that record was the last, if the Kinesis Producer Library has put several together; `WHOLE`: all of it was read."""
    read_to: int
    """All that had come to the shard until then was read, ms."""

    @staticmethod
    def of(position: Any, since: int) -> Place:
        """
        Args:
            position: of a checkpoint; None: of a shard that nothing was read of.
            since: from when on the job wants what comes, ms.
        """
        if position is None:
            return Place("", WHOLE, since)
        return Place(position["after"], position["sub"], position["read_to"])

    def position(self) -> dict[str, Any]:
        """JSON-able."""
        return {"after": self.after, "sub": self.sub, "read_to": self.read_to}
