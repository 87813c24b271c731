"""Calls of a source's enumerator, which is user code and runs in the JobManager. A call that hangs does not block the job forever.

Problem. A listing that does not return, or a deadlock in a client library, would block the JobMaster's thread. The JobMaster could then
take no checkpoint, handle no failure and respond to no request. A thread cannot be killed.

Solution. The calls run one after the other in a separate thread, and the JobMaster waits for each call. The JobMaster
stops waiting if the call exceeds its time limit, or if the job must end. In both cases, the JobMaster abandons the
thread and the enumerator, and the next attempt creates a new enumerator. A call over its limit fails the attempt with
the stack of the thread.
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
_REMEDY = "check why this line does not return, or raise penstock.source.enumerator-timeout"

T = TypeVar("T")


class EnumeratorCalls:
    """Calls of one source's enumerator.

    Args:
        name: name of the source, for messages.
        location: `file:line` of the source in the program, for messages.
        limit_s: time limit of a call, in seconds. 0 means no limit.
    """

    def __init__(self, name: str, location: str, limit_s: float) -> None:
        self._name = name
        self._location = location
        self._limit_s = limit_s
        self._thread = WorkThread("penstock-enumerator")
        self._current: Future[Any] | None = None
        self._given_up: Future[Any] | None = None
        self.is_stuck = False
        """Whether the last call has not returned. If so, the enumerator must not be used again."""

    def __call__(self, call: Callable[[], T], step: str, limit_s: float | None = None) -> T:
        """Return the result of `call`. The JobMaster's thread calls it.

        Args:
            step: description of the call, for messages.
            limit_s: time limit in seconds. None means the limit of all calls.

        Raises:
            UserFunctionError: the enumerator raised an exception.
            JobFailed: the call exceeded its limit.
            EpochFailed: the job must end, and the call does not return.
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
                raise EpochFailed(
                    f"the call of the enumerator of source {self._name!r} ({step}) was abandoned, because the attempt has ended"
                )
            where = whereabouts(self._thread.ident, step, limit, self._name, self._location)
            raise JobFailed(timeout_failure(where, limit, _REMEDY))
        with naming(self._name, self._location):
            return future.result()

    def give_up(self) -> None:
        """Stop waiting for the current call, because the job must end. Another thread calls it."""
        self._given_up = self._current

    def close(self) -> None:
        self._thread.close()
