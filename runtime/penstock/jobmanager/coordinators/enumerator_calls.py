"""Calls of a source's enumerator, which is the user's and runs in the JobManager: none of them holds the job for ever.

The problem. A listing that does not come back, or a lock in somebody's client, would keep the JobMaster's thread: no checkpoint,
no failure, no request answered. A thread cannot be killed.

The way. The calls run one after the other on a thread of their own, and the JobMaster waits for each of them: until its
time is over, which fails the attempt with the stack of that thread, or until the job must end. Then the thread is left
behind, and the enumerator with it; the next attempt makes another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from penstock.common.errors import EpochFailed
from penstock.common.program.user_frames import naming
from penstock.jobmanager.coordinators.work_thread import WorkThread
from penstock.jobmanager.failover.failures import JobFailed
from penstock.taskmanager.watching.watchdog import timeout_failure, whereabouts

POLL_S = 0.2
_REMEDY = "see why this line does not return, or raise penstock.source.enumerator-timeout"

T = TypeVar("T")


class EnumeratorCalls:
    """Of one source.

    Args:
        name: of the source, with `location` for messages.
        limit_s: how long a call may take, s; 0: for ever.
    """

    def __init__(self, name: str, location: str, limit_s: float) -> None:
        self._name = name
        self._location = location
        self._limit_s = limit_s
        self._thread = WorkThread("penstock-enumerator")
        self._current: Future[Any] | None = None
        self._given_up: Future[Any] | None = None
        self.is_stuck = False
        """The last call has not come back: its enumerator must not be used any more."""

    def __call__(self, call: Callable[[], T], step: str, limit_s: float | None = None) -> T:
        """What `call` gives; from the JobMaster's thread.

        Args:
            step: what it does, in words, for messages.
            limit_s: None: that of all.

        Raises:
            UserFunctionError: the enumerator raised.
            JobFailed: it has not come back in its time.
            EpochFailed: the job must end and it does not come back.
        """
        if self.is_stuck:
            self._thread, self.is_stuck = WorkThread("penstock-enumerator"), False
        future = self._thread.submit(call)
        self._current = future
        limit = self._limit_s if limit_s is None else limit_s
        began = time.monotonic()
        while wait([future], POLL_S).not_done:
            seconds = time.monotonic() - began
            is_given_up = self._given_up is future
            if not is_given_up and (not limit or seconds < limit):
                continue
            self.is_stuck = True
            if is_given_up:
                raise EpochFailed(f"the enumerator of source {self._name!r}, {step}, was given up")
            where = whereabouts(self._thread.ident, step, limit, self._name, self._location)
            raise JobFailed(timeout_failure(where, limit, _REMEDY))
        with naming(self._name, self._location):
            return future.result()

    def give_up(self) -> None:
        """Wait no longer for the call there is now, if there is one: the job must end (from another thread)."""
        self._given_up = self._current

    def close(self) -> None:
        self._thread.close()
