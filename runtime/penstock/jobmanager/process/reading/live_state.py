"""State that tasks hold now, by key: the live part of queryable state, for REST.

A response belongs to the running attempt, and this JobManager must lead. The job must be RUNNING before the request and after the response.
Otherwise, the lookup fails. A shared check of the storage, at most every few seconds, shows whether another JobManager has taken over. No
lookup waits for another lookup. If storage or tasks do not respond, lookups use at most `MAX_LOOK_UPS` of REST's threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from penstock.checkpoint.savepoint.entries import columns
from penstock.common.errors import Fenced, NotNow, PenstockError, StateTypeError, StorageError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.process.reading.key_texts import check_type, readings
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.rest import facts
from penstock.rest.errors import BadRequest
from penstock.state.peek.rows import row_of, sample_key
from penstock.state.peek.stored import Peeked

LEADS_S = 5.0
"""Time in seconds for which the result of a leadership check is valid, whether it succeeded or failed."""
_FRESH_S = LEADS_S / 2
"""Age from which one lookup renews the result, so that other lookups rarely find an expired result."""
MAX_LOOK_UPS = 20
"""Maximum number of concurrent lookups of all jobs. Each uses one of REST's 40 threads."""
_AGAIN = "retry in a moment, or ask with consistency=checkpoint"
_INSTEAD = "ask with consistency=checkpoint"
_PLAIN = (str, int, float, bool, tuple, type(None))


class LiveState:
    """Live state of all jobs of a JobManager."""

    def __init__(self) -> None:
        self._leads: WeakKeyDictionary[JobMaster, _Leads] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_LOOK_UPS)

    def entries(self, job: JobMaster, uid: str, state: str, key: str) -> facts.StateEntries:
        """Return the current entries of a key.

        Raises:
            NotNow: the lookup is impossible at the moment.
            BadRequest, NotPeekable: the lookup is possible only in a checkpoint.
        """
        look_ups = job.runner.look_ups
        if look_ups is None:
            raise BadRequest(f"tasks of the {job.runner.name} runner do not support lookups", remedy=_INSTEAD)
        if not self._places.acquire(blocking=False):
            raise NotNow(f"{MAX_LOOK_UPS} lookups are already in progress in this JobManager", remedy=_AGAIN)
        try:
            self._leads_of(job).check(job.checkpoints.check_leads)
            attempt = _running_attempt(job)
            found = _look_up_readings(look_ups, uid, state, key)
        finally:
            self._places.release()
        if _running_attempt(job) != attempt:
            raise NotNow("the job restarted during the lookup", remedy="ask again")
        return facts.StateEntries(0, job.clock.now_ms(), found, attempt=attempt)

    def _leads_of(self, job: JobMaster) -> _Leads:
        with self._lock:
            found = self._leads.get(job)
            if found is None:
                found = self._leads[job] = _Leads()
            return found


class _Leads:
    """Result of the last check of whether this JobManager leads a job. One lookup runs the check, and no other lookup waits for it."""

    def __init__(self) -> None:
        self._checking = threading.Lock()
        self._seen = -LEADS_S
        self._failed = -LEADS_S
        self._failure: PenstockError | None = None

    def check(self, look: Callable[[], None]) -> None:
        """Check the leadership.

        Args:
            look: function that raises `StorageError` or `Fenced`.

        Raises:
            NotNow: the check failed or is still running.
            Fenced: this JobManager no longer leads.
        """
        age = time.monotonic() - self._seen
        if age < _FRESH_S:
            return
        if not self._checking.acquire(blocking=False):
            if age < LEADS_S:
                return
            raise NotNow("the JobManager is checking whether it leads", remedy=_AGAIN)
        try:
            self._check_if_due(look)
        finally:
            self._checking.release()

    def _check_if_due(self, look: Callable[[], None]) -> None:
        began = time.monotonic()
        if began - self._seen < _FRESH_S:
            return
        if self._failure is None or began - self._failed >= LEADS_S:
            try:
                look()
            except (StorageError, Fenced) as error:
                self._failure, self._failed = error, time.monotonic()
            else:
                self._failure, self._seen = None, began
        failure = self._failure
        if isinstance(failure, Fenced):
            raise Fenced(failure.message, remedy=failure.remedy)
        if failure is not None:
            raise NotNow(f"the JobManager cannot check whether it leads: {failure.message}", remedy=_INSTEAD)


def _running_attempt(job: JobMaster) -> int:
    if job.history.status is not JobStatus.RUNNING:
        raise NotNow(
            f"the job is {job.history.status.value}, but tasks answer only while it is RUNNING", remedy=_INSTEAD
        )
    return job.attempt


def _look_up_readings(look_ups: LiveLookUps, uid: str, state: str, key: str) -> list[dict[str, object]]:
    """Look up all possible meanings of the key's text. If one meaning cannot be looked up, the other meanings still
    are."""
    sample: Peeked | None = None
    refusal: PenstockError | None = None
    for value in readings(key):
        try:
            peeked = look_ups.look_up(uid, state, value)
        except NotNow as error:
            refusal = error
            continue
        except StateTypeError as error:
            refusal = refusal or BadRequest(
                error.message, remedy="use a text, number, bool or null, or a list of these"
            )
            continue
        row = row_of(value, state, peeked)
        if row is not None:
            return [columns(row)]
        sample = peeked if peeked.sample is not None else sample
    if refusal is not None:
        raise refusal
    if sample is not None:
        _check_sample(sample, state, key)
    return []


def _check_sample(peeked: Peeked, state: str, key: str) -> None:
    """Check, after a lookup that found no entry, whether a text can represent the keys of the state.

    Raises:
        BadRequest: a text cannot represent the keys.
    """
    try:
        sample = sample_key(peeked, state)
    except PenstockError:
        sample = ...
    if type(sample) not in _PLAIN:
        raise BadRequest(
            f"keys of state {state!r} are not texts or numbers, and tasks only look up such keys", remedy=_INSTEAD
        )
    check_type([sample], state, key)
