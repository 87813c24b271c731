"""The ids of messages that are in the job's state and may be redelivered.

The broker may redeliver a message until it has the acknowledgement. It may redeliver the message even later, because a killed broker
loses acknowledgements that it had not written yet. It redelivers old messages before it delivers new messages. So this class forgets an id
when all of these are true:

- The message was acknowledged.
- Since the acknowledgement, the connection has been up for some time.
- After this time, a new message arrived or the queue was empty.
"""

from __future__ import annotations

from penstock.connectors.messages import seen_ids
from penstock.connectors.messages.seen_ids import IdGroup, as_text, from_text

_NEVER = float("inf")


class SeenIds(seen_ids.SeenIds):
    """The ids of messages that may be redelivered. Times are those of the monotonic clock.

    Args:
        position: a former value of `position`. "" means none.
        kept_s: how long an id is kept after its acknowledgement, in seconds.

    >>> seen = SeenIds("", 10.0)
    >>> seen.add("a"), seen.add("b"), seen.add("a")
    (True, True, False)
    >>> SeenIds(seen.position, 10.0).add("b")
    False
    """

    def __init__(self, position: str, kept_s: float) -> None:
        ids = from_text(position)
        # The broker redelivers unacknowledged messages as soon as a connection exists. It is unknown which messages these are.
        super().__init__([IdGroup(0, ids, _NEVER)] if ids else [], kept_s)

    def connected(self, now: float) -> None:
        """Restart the waiting times. If the broker has crashed, it may redeliver messages that were acknowledged on an old connection."""
        for group in self._groups:
            if group.forget_at is not None:
                group.forget_at = now + self._kept_s

    def forget(self, at: float) -> None:
        """Forget old ids. The caller has added all messages that were delivered before `at`.

        `at`: the time when a new message arrived or the queue was empty."""
        while self._groups and (forget_at := self._groups[0].forget_at) is not None and forget_at < at:
            self._forget(self._groups.popleft())

    @property
    def position(self) -> str:
        return as_text([*self._counts])
