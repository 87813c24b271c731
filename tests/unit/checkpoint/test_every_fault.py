"""Every request of a job's life to the store and everything that may go wrong with it.

The life of a job (`life`) is lived once without a fault to count its requests, and then once for each request and each fault.
Afterwards, whatever was hit:

- the job has ended as FINISHED, or it has failed with storage's own words: it is never fenced off, for there is nobody else;
- every number is visible once, or the job has failed and a successor, started on a store that works, makes it so;
- nothing that the newest checkpoint or the savepoint names is missing.
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
"""By a clock that only pauses move, and pauses are half as long as this or more."""
TRIES = 8
"""More than a request is tried."""

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
    """What happens to request number `at`, and what to the tries of it that follow."""

    at: int
    fault: Fault
    then: Fault | None = None
    """To every further try of the same request until it is given up; None: it is answered."""
    is_away_after: bool = False
    """The store answers nothing for as long as a request is tried."""


class HitStore(FaultyStore):
    """Hits one request, by its number; `requests` counts them."""

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
    """Lived and checked."""
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
def test_a_request_that_is_hit_once(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault))


@pytest.mark.parametrize("then", [Fault.TIMEOUT_BEFORE, Fault.DENIED], ids=lambda fault: fault.name)
@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.LATE], ids=lambda fault: fault.name)
def test_a_request_whose_tries_are_used_up(fault: Fault, then: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, then))


@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.LATE], ids=lambda fault: fault.name)
def test_a_store_that_goes_away_with_a_request(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, is_away_after=True))


def test_the_life_has_every_step_of_the_protocol() -> None:
    """Else the tests above would not hit them."""
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
