"""Calls of sinks' committers, which are user code and run in the JobManager. A call that hangs does not block the job forever.

Problem. A thread that hangs cannot be killed (see `enumerator_calls`). In addition, commits run in parallel with the
epochs. A hanging thread may return much later, when the next attempt runs and has already made the promised commits.
The commit that the thread is executing is harmless, because commits are idempotent. But the thread must not start any
later commit.

Solution. The committers of an attempt form a crew with its own thread. A crew is abandoned as a whole if a call exceeds its time
limit, or if the job must end. A call over its limit fails the attempt with the stack of the thread. Abandoning a crew has these steps:

- Its committers are fenced (`Committer.give_up`). They check this between two committables.
- The work that waits for the crew's thread is cancelled.
- Its operations on the cluster are interrupted.

The next attempt creates a new crew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from penstock.common.errors import EpochFailed
from penstock.connectors.core.sink import Committer
from penstock.jobmanager.coordinators.work_thread import WorkThread
from penstock.jobmanager.failover.failures import JobFailed
from penstock.taskmanager.watching.watchdog import timeout_failure, whereabouts

_REMEDY = "check why this line does not return, or raise penstock.sink.commit-timeout. The next attempt commits again"

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """Name and location of a sink, for messages."""

    name: str
    location: str


@dataclass(frozen=True)
class _Call:
    target: Target
    step: str
    since: float
    """Start on the monotonic clock, in seconds."""


class CommitterCalls:
    """Crew of committers with one thread.

    Args:
        limit_s: time limit of a call, in seconds. 0 means no limit.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._thread = WorkThread("penstock-commit")
        self._call: _Call | None = None
        self._futures: list[Future[None]] = []
        self.committers: dict[str, Committer] = {}
        """Committers by uid."""
        self.is_given_up = False

    @property
    def calling(self) -> str:
        """Return the name of the sink whose committer is being called, or an empty string. Any thread may call it."""
        call = self._call
        return "" if call is None else call.target.name

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run the work in the thread, after the work that was submitted before."""
        future = self._thread.submit(work)
        self._futures = [*(other for other in self._futures if not other.done()), future]
        return future

    def call(self, target: Target, step: str, call: Callable[[], T]) -> T:
        """Return the result of `call`, in the crew's thread. `step` describes the call for messages.

        Raises:
            EpochFailed: the crew is abandoned.
        """
        if self.is_given_up:
            raise EpochFailed(f"{step} did not start, because the attempt has ended")
        self._call = _Call(target, step, time.monotonic())
        try:
            return call()
        finally:
            self._call = None

    def check_time_limit(self) -> None:
        """Check the time limit. The JobMaster's thread calls it regularly.

        Raises:
            JobFailed: the running call exceeded its limit. The crew is abandoned.
        """
        call = self._call
        if call is None or not self._limit_s or time.monotonic() - call.since < self._limit_s:
            return
        where = whereabouts(self._thread.ident, call.step, self._limit_s, call.target.name, call.target.location)
        if self._call is not call:  # the call returned in the meantime
            return
        self.give_up()
        raise JobFailed(timeout_failure(where, self._limit_s, _REMEDY))

    def give_up(self) -> None:
        """Abandon the thread, and start no more work on it."""
        self.is_given_up = True
        name = self.calling
        for committer in self.committers.values():
            committer.give_up()
        for future in self._futures:
            if not future.cancel():
                future.add_done_callback(lambda done: _log_return(name, done))
        for committer in self.committers.values():
            try:
                committer.interrupt()
            except Exception as error:  # the cluster stopped before
                logger.info("a commit could not be interrupted: %s", error)
        self._thread.close()

    def close(self) -> None:
        """End the thread after its pending work. Later work gets a new thread."""
        for committer in self.committers.values():
            closing = getattr(committer, "close", None)  # a committer may implement the methods without the base class
            if closing is not None:
                self._thread.submit(closing)
        self._thread.close()
        self._thread = WorkThread("penstock-commit")


def _log_return(name: str, done: Future[None]) -> None:
    """Log the result of an abandoned call, which has no waiting caller."""
    error = done.exception()
    came = "completed later" if error is None else f"failed later: {error}"
    logger.warning("the abandoned commit of sink %r %s", name, came)
