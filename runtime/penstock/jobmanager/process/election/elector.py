"""The decisions of one process in an election: wait, claim, renew, stop.

Safety does not depend on the election. Only the leader epoch in checkpoint storage decides which checkpoints count
(`penstock.checkpoint.leadership.fencing`). The election prevents that two processes run the job at the same time for longer than a moment.

- A waiting process claims the next term if the heartbeat has not changed for the lease duration. It need not wait if the leader's process is
  known to be dead, or if the leader has given up the leadership.
- A process compares only times that it has measured itself, with its monotonic clock. So clocks that differ or jump have no effect.
- A leader keeps the leadership while storage does not respond, up to the renew deadline. A short outage of storage or of the Kubernetes API
  does not restart the job.
- A process leads at most once. If it loses the leadership, it must end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.common.errors import StorageError
from penstock.jobmanager.process.election.claims import Claims, Holder

logger = logging.getLogger(__name__)


class Role(Enum):
    """Role of a process in the election."""

    WAITING = "waiting"
    LEADING = "leading"
    LOST = "lost"


@dataclass(frozen=True)
class ElectionTimes:
    """Times of an election in seconds."""

    lease_s: float = 5.0
    """Time without a new heartbeat after which another process claims the leadership."""
    interval_s: float = 1.0
    """Time between two heartbeats."""
    deadline_s: float = 60.0
    """Time without an answer of storage after which a leader ends."""


class Elector:
    """Election from the view of one process. Only one thread calls `step`.

    Args:
        claims: place of the claims.
        me: this process, with its addresses.
        clock: monotonic clock in seconds.
    """

    def __init__(self, claims: Claims, me: Holder, times: ElectionTimes, clock: Callable[[], float]) -> None:
        self._claims = claims
        self._me = me
        self._times = times
        self._clock = clock
        self.role = Role.WAITING
        self.reason = ""
        """Reason for the loss of the leadership."""
        self.leader: Holder | None = None
        """Newest leader that this process has seen."""
        self._changed_at = 0.0
        """Time at which this process saw the newest heartbeat of the leader."""
        self.renewed_at = float("-inf")
        """Time at which this process certainly led for the last time: the start of the newest heartbeat that storage has confirmed."""
        self._dead = ""
        """Id of a process that has ended without giving up the leadership."""

    def report_death(self, holder_id: str) -> None:
        """Record that the process of a leader has ended, so that the next step need not wait. Any thread may call it."""
        self._dead = holder_id

    def step(self) -> Role:
        """Observe, then claim or renew if it is time. Return the role after this step."""
        if self.role is Role.WAITING:
            self._wait()
        elif self.role is Role.LEADING:
            self._renew()
        return self.role

    def release(self) -> None:
        """Give up the leadership. The process must not lead again."""
        if self.role is Role.LEADING and self.leader is not None:
            self._lose("the process ends")
            self._claims.release(self.leader)
        self.role = Role.LOST

    def _wait(self) -> None:
        started = self._clock()
        seen = self._claims.current()
        if seen is None:
            self._claim(None, started)
            return
        if seen.id == self._me.id and not seen.released:  # an earlier claim of this process was stored but not answered
            self._lead(seen, started)
            return
        if self.leader is None or _progress(seen) != _progress(self.leader):
            self.leader, self._changed_at = seen, self._clock()
        is_silent = started - self._changed_at >= self._times.lease_s
        if seen.released or is_silent or seen.id == self._dead:
            self._claim(seen, started)

    def _claim(self, over: Holder | None, started: float) -> None:
        if self._clock() - started > self._times.lease_s / 2:
            return  # the observation is old, because this process was paused
        candidate = msgspec.structs.replace(self._me, term=1 if over is None else over.term + 1)
        if self._claims.claim(candidate, over):
            self._lead(candidate, started)

    def _lead(self, holder: Holder, started: float) -> None:
        self.leader, self.renewed_at = holder, started
        self.role = Role.LEADING
        logger.info("this process leads in term %d", holder.term)

    def _renew(self) -> None:
        assert self.leader is not None
        started = self._clock()
        renewed = msgspec.structs.replace(self.leader, beat=self.leader.beat + 1)
        try:
            leads = self._claims.renew(renewed)
        except StorageError as error:
            if started - self.renewed_at > self._times.deadline_s:
                self._lose(f"the heartbeat could not be stored for {started - self.renewed_at:.0f} s: {error.message}")
            return
        if leads:
            self.leader, self.renewed_at = renewed, started
        else:
            self._lose("another process has claimed the leadership")

    def _lose(self, reason: str) -> None:
        self.role, self.reason = Role.LOST, reason


def _progress(holder: Holder) -> tuple[int, str, int]:
    return holder.term, holder.id, holder.beat
