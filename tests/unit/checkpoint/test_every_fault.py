"""Every request of a job's life to the store, combined with every fault that can occur.

The life of a job (`life`) runs once without a fault to count its requests, and then once for each request and fault.
After each run:

- The job is FINISHED, or it failed with the error of the storage. It is never fenced, because it is the only leader.
- Every number is visible once. If the job failed, a successor on a working store achieves this.
- All objects that the newest checkpoint or the savepoint names exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores
from tests.unit.checkpoint.life import JobManager, Sink, check
from tests.unit.checkpoint.support import DictStore

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = RetryPolicy(retry_for=3, pause=1, max_pause=1)
"""The limits of retries, by a clock that only pauses advance. A pause lasts at least half of its nominal time."""
TRIES = 8
"""A number above the number of tries of a request."""

ONCE = [
    Fault.TIMEOUT_BEFORE,
    Fault.TIMEOUT_AFTER,
    Fault.LATE,
    Fault.CONFLICT,
    Fault.EXISTS,
    Fault.INTERNAL_ERROR,
    Fault.UNAVAILABLE,
    Fault.DENIED,
    Fault.TRUNCATED,
]


@dataclass(frozen=True)
class Trouble:
    """The fault of request number `at` and of its retries."""

    at: int
    fault: Fault
    then: Fault | None = None
    """The fault of every retry of the same request until the caller gives up. None means that the retry is answered."""
    is_away_after: bool = False
    """Whether the store answers no request until the caller gives up this one."""


class HitStore(FaultyStore):
    """A store that injects a fault into one request by its number. `requests` counts the requests."""

    def __init__(self, inner: DictStore, trouble: Trouble | None) -> None:
        super().__init__(inner)
        self.requests = 0
        self._trouble = trouble
        self._place: tuple[str, str] | None = None
        self._left = 0

    def _take(self, operation: str, url: str) -> Fault | None:
        self.requests += 1
        trouble = self._trouble
        if trouble is None:
            return None
        if self.requests == trouble.at:
            self._place, self._left = (operation, url), TRIES
            return trouble.fault if operation in ("get", "put") or trouble.fault not in _PUTS_ONLY else Fault.DENIED
        if self._place is None or self._left <= 0:
            return None
        if trouble.is_away_after:
            self._left -= 1
            return Fault.TIMEOUT_BEFORE
        if trouble.then is not None and (operation, url) == self._place:
            self._left -= 1
            return trouble.then
        return None


_PUTS_ONLY = (Fault.EXISTS, Fault.TRUNCATED)


def storage_on(store: FaultyStore) -> CheckpointStorage:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    stores = Stores(policy=POLICY)
    stores.use("dict", RetryingStore(store, POLICY, sleep=sleep, clock=lambda: clock[0]))
    return CheckpointStorage("dict://root", "job", policy=POLICY, stores=stores)


def life(trouble: Trouble | None) -> HitStore:
    """Run the life of a job and check its outcome."""
    store = HitStore(DictStore(), trouble)
    manager = JobManager(storage_on(store), Sink())
    status = manager.run()
    store.land_late()
    check(manager, status, storage_on(FaultyStore(store.inner)))
    return store


def every_request(make: Callable[[int], Trouble]) -> None:
    for at in range(1, life(None).requests + 1):
        trouble = make(at)
        try:
            life(trouble)
        except BaseException as error:
            error.add_note(f"with {trouble}")
            raise


@pytest.mark.parametrize("fault", ONCE, ids=lambda fault: fault.name)
def test_a_job_survives_one_fault_of_a_request(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault))


FIRST = [
    pytest.param(Fault.TIMEOUT_BEFORE, marks=pytest.mark.slow),
    Fault.TIMEOUT_AFTER,
    pytest.param(Fault.LATE, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("then", [Fault.TIMEOUT_BEFORE, Fault.DENIED], ids=lambda fault: fault.name)
@pytest.mark.parametrize("fault", FIRST, ids=lambda fault: fault.name)
def test_a_job_survives_a_request_whose_retries_all_fail(fault: Fault, then: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, then))


@pytest.mark.parametrize("fault", FIRST, ids=lambda fault: fault.name)
def test_a_job_survives_a_store_that_becomes_unavailable(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, is_away_after=True))


def test_the_life_has_every_step_of_the_protocol() -> None:
    """Check the life itself, because the tests above could otherwise miss a step."""
    urls = {(operation, url.removeprefix("dict://root/job/")) for operation, url in life(None).calls}
    for step in [
        *(("put", f"leader/{epoch}{part}") for epoch in (1, 2, 3) for part in ("", ".base")),
        ("put", "chk-1/_metadata"),
        ("put", "latest"),
        ("get", "leader/1.base"),
        ("list", "leader"),
        ("delete", "chk-1/_metadata"),
    ]:
        assert step in urls, step
    assert any(operation == "copy" for operation, _ in urls)
    assert any(operation == "put" and "savepoint-" in url for operation, url in urls)
