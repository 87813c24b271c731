"""The record of an election: the process that leads, its term, and its heartbeat."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """A process that leads or wants to lead."""

    id: str
    """Unique id of the process."""
    term: int = 0
    """Number of the leadership. It grows with each change of the leader."""
    beat: int = 0
    """Number of the last heartbeat in this term."""
    rest: str = ""
    """URL of the process's REST API, for other members of the cluster. It is empty if the process serves no REST."""
    link: str = ""
    """`host:port` of the process's `LeaderLink`."""
    released: bool = False
    """Whether the process has given up the leadership. The next process need not wait."""


class Claims(Protocol):
    """The place at which processes claim the leadership. At most one claim of a term succeeds.

    All methods raise `StorageError` if the place does not respond. The outcome of the call is then unknown.
    """

    def current(self) -> Holder | None:
        """Return the newest holder, or None if no process has ever led."""
        ...

    def claim(self, candidate: Holder, over: Holder | None) -> bool:
        """Claim the term of the candidate, which follows the term of `over`. Return False if another process was faster."""
        ...

    def renew(self, holder: Holder) -> bool:
        """Store the heartbeat of the holder. Return False if another process has claimed a higher term."""
        ...

    def release(self, holder: Holder) -> None:
        """Record that the holder has given up the leadership."""
        ...
