"""The ids of messages that are in the job's state and may be redelivered.

SQS may redeliver a message until the message is deleted, and in rare cases also shortly after that. After a restore, the source does not
know which messages of the checkpoint were deleted. Messages that were not deleted may wait in a long queue before SQS redelivers them, but
no longer than the queue's retention.
"""

from __future__ import annotations

import json
from collections import deque

from penstock.connectors.messages import seen_ids
from penstock.connectors.messages.seen_ids import IdGroup, as_text, from_text


class SeenIds(seen_ids.SeenIds):
    """The ids of messages that may be redelivered. Times are in s since the epoch, because they are part of the position.

    Args:
        position: a former value of `position`. "" means none.
        kept_s: how long an id is kept after its message was deleted, in seconds.
        retention_s: how long the queue keeps messages, in seconds.
        now: the time in s since the epoch.

    >>> seen = SeenIds("", 10.0, 100.0, 0.0)
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    >>> later = SeenIds(seen.position, 10.0, 100.0, 50.0)
    >>> later.forget(149.0), later.add("b")
    (None, False)
    """

    def __init__(self, position: str, kept_s: float, retention_s: float, now: float) -> None:
        restored = [
            IdGroup(0, from_text(text), now + retention_s if forget_at is None else forget_at)
            for forget_at, text in json.loads(position or "[]")
        ]
        super().__init__(restored, kept_s)

    def forget(self, now: float) -> None:
        """Forget the ids whose retention time has passed."""
        kept: deque[IdGroup] = deque()
        for group in self._groups:
            if group.forget_at is None or group.forget_at > now:
                kept.append(group)
            else:
                self._forget(group)
        self._groups = kept

    @property
    def position(self) -> str:
        groups = [(group.forget_at, group.ids) for group in self._groups]
        if self._new:
            groups.append((None, self._new))
        return json.dumps([[at, as_text(ids)] for at, ids in groups])
