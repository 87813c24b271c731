"""The ids of messages whose records are in the job's state and that may come again.

A message may come again until the broker has its acknowledgement, and for a while after, for a broker that is killed forgets
acknowledgements that it had not written yet. What it gives again it gives before what it has never given. So an id is
forgotten when its message was acknowledged, the connection has stood for a time since, and a message has come then
that is no repetition, or the queue was empty.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, deque
from dataclasses import dataclass

_SIZE = 16
_NEVER = float("inf")


@dataclass
class _Group:
    """Of the messages that were read between two checkpoints."""

    checkpoint_id: int
    ids: list[bytes]
    is_acknowledged: bool = False
    forget_at: float = _NEVER


class SeenIds:
    """
    Args:
        position: what `position` gave; "": none.
        kept_s: how long an id stays after its acknowledgement.

    >>> seen = SeenIds("", 10.0)
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    >>> SeenIds(seen.position, 10.0).add("b")
    False
    """

    def __init__(self, position: str, kept_s: float) -> None:
        self._kept_s = kept_s
        self._groups: deque[_Group] = deque()
        self._new: list[bytes] = []
        found = base64.b64decode(position)
        ids = [found[begin : begin + _SIZE] for begin in range(0, len(found), _SIZE)]
        if ids:
            # those not acknowledged come at once, as soon as there is a connection; nobody knows which
            self._groups.append(_Group(0, ids, is_acknowledged=True))
        self._counts = Counter(ids)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, id: str | bytes) -> bool:
        """Whether it is new. One that is not waits for an acknowledgement once more."""
        digest = hashlib.blake2b(id if isinstance(id, bytes) else id.encode(), digest_size=_SIZE).digest()
        is_new = digest not in self._counts
        self._counts[digest] += 1
        self._new.append(digest)
        return is_new

    def snapshot(self, checkpoint_id: int) -> None:
        """What was read until now is in this checkpoint."""
        if self._new:
            self._groups.append(_Group(checkpoint_id, self._new))
            self._new = []

    def acknowledged(self, checkpoint_id: int, now: float) -> None:
        """The broker has the acknowledgements of all that is in this checkpoint."""
        for group in self._groups:
            if group.checkpoint_id <= checkpoint_id and not group.is_acknowledged:
                group.is_acknowledged, group.forget_at = True, now + self._kept_s

    def connected(self, now: float) -> None:
        """What was acknowledged on another connection may come again on this one, if the broker has died meanwhile."""
        for group in self._groups:
            if group.is_acknowledged:
                group.forget_at = now + self._kept_s

    def forget(self, at: float) -> None:
        """`at`: when a message came that is no repetition, or the queue was empty; all that was delivered before has been added."""
        while self._groups and self._groups[0].forget_at < at:
            for digest in self._groups.popleft().ids:
                self._counts[digest] -= 1
                if not self._counts[digest]:
                    del self._counts[digest]

    @property
    def position(self) -> str:
        return base64.b64encode(b"".join([*self._counts])).decode("ascii")
