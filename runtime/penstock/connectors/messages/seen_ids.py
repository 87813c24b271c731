"""The ids of messages that the job has read and the server may redeliver. Each queue has a separate rule for when to forget an id."""

from __future__ import annotations

import base64
import hashlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass

_SIZE = 16


@dataclass
class IdGroup:
    """The ids of the messages that were read between two checkpoints."""

    checkpoint_id: int
    ids: list[bytes]
    forget_at: float | None = None
    """Time in s at which the ids can be forgotten, by the clock of the queue's rule. None means that the messages are not acknowledged yet."""


class SeenIds(ABC):
    """The ids of messages that may be redelivered.

    Args:
        restored: the groups of a former position.
        kept_s: how long an id is kept after its message was acknowledged, in seconds.
    """

    def __init__(self, restored: list[IdGroup], kept_s: float) -> None:
        self._kept_s = kept_s
        self._new: list[bytes] = []
        self._groups = deque(restored)
        self._counts = Counter(id for group in restored for id in group.ids)

    def __len__(self) -> int:
        return len(self._counts)

    @property
    @abstractmethod
    def position(self) -> str:
        """Return the ids as text for the checkpoint."""

    def add(self, id: str | bytes) -> bool:
        """Add an id and return whether it is new. A redelivered message must be acknowledged, too."""
        digest = hashlib.blake2b(id if isinstance(id, bytes) else id.encode(), digest_size=_SIZE).digest()
        is_new = digest not in self._counts
        self._counts[digest] += 1
        self._new.append(digest)
        return is_new

    def snapshot(self, checkpoint_id: int) -> None:
        """Assign the ids of all messages read since the last snapshot to this checkpoint."""
        if self._new:
            self._groups.append(IdGroup(checkpoint_id, self._new))
            self._new = []

    def acknowledged(self, checkpoint_id: int, now: float) -> None:
        """Record that the server has the acknowledgements of all messages up to this checkpoint."""
        for group in self._groups:
            if group.forget_at is None and group.checkpoint_id <= checkpoint_id:
                group.forget_at = now + self._kept_s

    def _forget(self, group: IdGroup) -> None:
        for digest in group.ids:
            self._counts[digest] -= 1
            if not self._counts[digest]:
                del self._counts[digest]


def as_text(ids: list[bytes]) -> str:
    return base64.b64encode(b"".join(ids)).decode("ascii")


def from_text(text: str) -> list[bytes]:
    """Return the ids that `as_text` has encoded."""
    found = base64.b64decode(text)
    return [found[begin : begin + _SIZE] for begin in range(0, len(found), _SIZE)]
