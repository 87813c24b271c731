"""The ids of messages whose records are in the job's state and that may come again.

A message may come again until SQS has deleted it, and now and then shortly after. Of those in a checkpoint that a job goes back to nobody knows which were
deleted; they may wait in a long queue before they come again, but no longer than the queue keeps messages.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, deque
from dataclasses import dataclass

_SIZE = 16


@dataclass
class _Group:
    """Of the messages that were read between two checkpoints."""

    checkpoint_id: int
    ids: list[bytes]
    forget_at: float | None = None
    """s since the epoch; None: they are not deleted yet."""


class SeenIds:
    """
    Args:
        position: what `position` gave; "": none.
        kept_s: how long an id stays after its message was deleted.
        retention_s: how long the queue keeps messages.
        now: s since the epoch.

    >>> seen = SeenIds("", 10.0, 100.0, 0.0)
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    >>> later = SeenIds(seen.position, 10.0, 100.0, 50.0)
    >>> later.forget(149.0), later.add("b")
    (None, False)
    """

    def __init__(self, position: str, kept_s: float, retention_s: float, now: float) -> None:
        self._kept_s = kept_s
        self._new: list[bytes] = []
        self._groups: deque[_Group] = deque()
        self._counts: Counter[bytes] = Counter()
        for forget_at, text in json.loads(position or "[]"):
            found = base64.b64decode(text)
            ids = [found[begin : begin + _SIZE] for begin in range(0, len(found), _SIZE)]
            self._groups.append(_Group(0, ids, now + retention_s if forget_at is None else forget_at))
            self._counts.update(ids)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, id: str) -> bool:
        """Whether it is new. One that is not waits for its deletion once more."""
        digest = hashlib.blake2b(id.encode(), digest_size=_SIZE).digest()
        is_new = digest not in self._counts
        self._counts[digest] += 1
        self._new.append(digest)
        return is_new

    def snapshot(self, checkpoint_id: int) -> None:
        """What was read until now is in this checkpoint."""
        if self._new:
            self._groups.append(_Group(checkpoint_id, self._new))
            self._new = []

    def deleted(self, checkpoint_id: int, now: float) -> None:
        """SQS has deleted all that is in this checkpoint."""
        for group in self._groups:
            if group.forget_at is None and group.checkpoint_id <= checkpoint_id:
                group.forget_at = now + self._kept_s

    def forget(self, now: float) -> None:
        """Those whose time is over."""
        kept: deque[_Group] = deque()
        for group in self._groups:
            if group.forget_at is None or group.forget_at > now:
                kept.append(group)
                continue
            for digest in group.ids:
                self._counts[digest] -= 1
                if not self._counts[digest]:
                    del self._counts[digest]
        self._groups = kept

    @property
    def position(self) -> str:
        groups = [(group.forget_at, group.ids) for group in self._groups]
        if self._new:
            groups.append((None, self._new))
        return json.dumps([[at, base64.b64encode(b"".join(ids)).decode("ascii")] for at, ids in groups])
