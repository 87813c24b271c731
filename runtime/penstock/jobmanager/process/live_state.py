"""State that tasks hold now, by key: the live part of queryable state, as REST asks for it.

An answer is of the attempt that runs, and this JobManager leads: a job that is not RUNNING before the question and after the answer
answers nothing, and whether another JobManager has taken over is looked up in storage, for all who ask together every few seconds. Nobody waits
for what another look-up does: storage or tasks that do not answer cost REST no more than `MOST` of its threads.
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
from penstock.jobmanager.process.key_texts import check_type, readings
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.rest import facts
from penstock.rest.errors import BadRequest
from penstock.state.peek import Peeked
from penstock.state.peeked_rows import row_of, sample_key

LEADS_S = 5.0
"""How long it counts that this JobManager was seen to lead; or that this could not be seen."""
_FRESH_S = LEADS_S / 2
"""From then on one look-up looks again, so that in most cases none finds it too long ago."""
MOST = 20
"""Look-ups at work at a time, of all jobs: each has one of the 40 threads that answer for REST."""
_AGAIN = "ask again in a moment, or with consistency=checkpoint"
_INSTEAD = "ask with consistency=checkpoint"
_PLAIN = (str, int, float, bool, tuple, type(None))


class LiveState:
    """Of all jobs of a JobManager."""

    def __init__(self) -> None:
        self._leads: WeakKeyDictionary[JobMaster, _Leads] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST)

    def entries(self, job: JobMaster, uid: str, state: str, key: str) -> facts.StateEntries:
        """What a key has now.

        Raises:
            NotNow: nobody can say at the moment.
            BadRequest, NotPeekable: nobody can say without a checkpoint.
        """
        look_ups = job.runner.look_ups
        if look_ups is None:
            raise BadRequest(f"tasks of the {job.runner.name} runner cannot be asked", remedy=_INSTEAD)
        if not self._places.acquire(blocking=False):
            raise NotNow(f"{MOST} look-ups are under way in this JobManager already", remedy=_AGAIN)
        try:
            self._leads_of(job).check(job.checkpoints.check_leads)
            attempt = _running_attempt(job)
            found = _look(look_ups, uid, state, key)
        finally:
            self._places.release()
        if _running_attempt(job) != attempt:
            raise NotNow("the job has restarted meanwhile", remedy="ask again")
        return facts.StateEntries(0, job.clock.now_ms(), found, attempt=attempt)

    def _leads_of(self, job: JobMaster) -> _Leads:
        with self._lock:
            found = self._leads.get(job)
            if found is None:
                found = self._leads[job] = _Leads()
            return found


class _Leads:
    """Whether this JobManager was seen to lead a job. One look-up sees to it, and no other waits for that one."""

    def __init__(self) -> None:
        self._checking = threading.Lock()
        self._seen = -LEADS_S
        self._failed = -LEADS_S
        self._failure: PenstockError | None = None

    def check(self, look: Callable[[], None]) -> None:
        """
        Args:
            look: raises `StorageError` or `Fenced`.

        Raises:
            NotNow: it cannot be seen, or is being looked up.
            Fenced: it does not lead any more.
        """
        age = time.monotonic() - self._seen
        if age < _FRESH_S:
            return
        if not self._checking.acquire(blocking=False):
            if age < LEADS_S:
                return
            raise NotNow("whether this JobManager leads is being looked up", remedy=_AGAIN)
        try:
            self._look_if_due(look)
        finally:
            self._checking.release()

    def _look_if_due(self, look: Callable[[], None]) -> None:
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
            raise NotNow(f"whether this JobManager leads cannot be seen: {failure.message}", remedy=_INSTEAD)


def _running_attempt(job: JobMaster) -> int:
    if job.history.status is not JobStatus.RUNNING:
        raise NotNow(f"the job is {job.history.status.value}, and tasks answer while it is RUNNING", remedy=_INSTEAD)
    return job.attempt


def _look(look_ups: LiveLookUps, uid: str, state: str, key: str) -> list[dict[str, object]]:
    """By all that the text of the key can mean; one meaning that cannot be asked for keeps no other from its answer."""
    sample: Peeked | None = None
    refusal: PenstockError | None = None
    for value in readings(key):
        try:
            peeked = look_ups.ask(uid, state, value)
        except NotNow as error:
            refusal = error
            continue
        except StateTypeError as error:
            refusal = refusal or BadRequest(
                error.message, remedy="ask for a text, number, bool or null, or a list of such"
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
    """Nothing was found: perhaps because keys are such that a text cannot mean one.

    Raises:
        BadRequest.
    """
    try:
        sample = sample_key(peeked)
    except (PenstockError, ValueError):
        sample = ...
    if type(sample) not in _PLAIN:
        raise BadRequest(
            f"keys of state {state!r} are no texts or numbers, and tasks are asked for such alone", remedy=_INSTEAD
        )
    check_type([sample], state, key)
