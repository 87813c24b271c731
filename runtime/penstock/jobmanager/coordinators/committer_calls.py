"""Calls of sinks' committers, which are the user's and run in the JobManager: none of them holds the job for ever.

The problem. As with enumerators (`enumerator_calls`): a thread that hangs cannot be killed. But commits run beside the epochs, and
such a thread may come back much later, when the next attempt has committed what was promised and goes on. The commit that it
is in the middle of does no harm, for commits are idempotent; those that it would go on with must not follow.

The way. The committers of an attempt form a crew with a thread of its own. When a call is past its limit, which fails the attempt with the stack of
that thread, or the job must end, the crew is given up as a whole: its committers are fenced off (`Committer.give_up`, looked at between two
committables), what waits for its thread is cancelled, what it does on the cluster is interrupted. The next attempt makes
another crew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from penstock.common.errors import EpochFailed
from penstock.connectors.sink import Committer
from penstock.jobmanager.coordinators.work_thread import WorkThread
from penstock.jobmanager.failover.failures import JobFailed
from penstock.taskmanager.watching.watchdog import timeout_failure, whereabouts

_REMEDY = "see why this line does not return, or raise penstock.sink.commit-timeout; the next attempt commits once more"

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A sink, for messages."""

    name: str
    location: str


@dataclass(frozen=True)
class _Call:
    target: Target
    step: str
    since: float
    """On the monotonic clock, s."""


class CommitterCalls:
    """One crew.

    Args:
        limit_s: how long a call may take, s; 0: for ever.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._thread = WorkThread("penstock-commit")
        self._call: _Call | None = None
        self._futures: list[Future[None]] = []
        self.committers: dict[str, Committer] = {}
        """By uid."""
        self.is_given_up = False

    @property
    def calling(self) -> str:
        """Name of the sink whose committer is being called now; empty: none is. From any thread."""
        call = self._call
        return "" if call is None else call.target.name

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Have the thread do it, after what it was given before."""
        future = self._thread.submit(work)
        self._futures = [*(other for other in self._futures if not other.done()), future]
        return future

    def call(self, target: Target, step: str, call: Callable[[], T]) -> T:
        """What `call` gives; on the thread. `step`: what it does, in words.

        Raises:
            EpochFailed: the crew is given up.
        """
        if self.is_given_up:
            raise EpochFailed(f"{step} was not begun: the attempt is over")
        self._call = _Call(target, step, time.monotonic())
        try:
            return call()
        finally:
            self._call = None

    def look(self) -> None:
        """From the JobMaster's thread, every now and then.

        Raises:
            JobFailed: the call that runs has taken too long; the crew is given up.
        """
        call = self._call
        if call is None or not self._limit_s or time.monotonic() - call.since < self._limit_s:
            return
        where = whereabouts(self._thread.ident, call.step, self._limit_s, call.target.name, call.target.location)
        if self._call is not call:  # it has come back meanwhile
            return
        self.give_up()
        raise JobFailed(timeout_failure(where, self._limit_s, _REMEDY))

    def give_up(self) -> None:
        """Leave the thread behind where it stands; nothing more is begun on it."""
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
            except Exception as error:  # the cluster has gone before
                logger.info("a commit could not be interrupted: %s", error)
        self._thread.close()

    def close(self) -> None:
        """The thread ends after what it was given; there is another one for what comes yet."""
        for committer in self.committers.values():
            closing = getattr(committer, "close", None)  # a committer may have the methods without the class
            if closing is not None:
                self._thread.submit(closing)
        self._thread.close()
        self._thread = WorkThread("penstock-commit")


def _log_return(name: str, done: Future[None]) -> None:
    """Nobody asks for its result any more."""
    error = done.exception()
    came = "has been carried out after all" if error is None else f"has come back: {error}"
    logger.warning("the commit of sink %r that was given up %s", name, came)
