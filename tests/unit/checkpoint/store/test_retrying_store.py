"""Retries, unknown outcomes and the errors that users see."""

from __future__ import annotations

import pytest

from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores
from penstock.common.errors import StorageError
from tests.unit.checkpoint.support import DictStore

URL = "dict://root/leader/1"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def faulty() -> FaultyStore:
    return FaultyStore(DictStore())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(faulty: FaultyStore, clock: Clock) -> RetryingStore:
    return RetryingStore(faulty, RetryPolicy(retry_for=60), sleep=clock.sleep, clock=lambda: clock.now)


@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.CONFLICT, Fault.INTERNAL_ERROR, Fault.UNAVAILABLE])
@pytest.mark.parametrize("operation", ["put", "get", "list", "delete", "copy", "head"])
def test_transient_errors_are_retried(store: RetryingStore, faulty: FaultyStore, operation: str, fault: Fault) -> None:
    store.put("dict://root/x", b"x")
    faulty.inject(operation, fault, times=3)
    if operation == "put":
        store.put("dict://root/y", b"y")
    elif operation == "get":
        assert store.get("dict://root/x") == b"x"
    elif operation == "list":
        assert len(store.list_objects("dict://root")) == 1
    elif operation == "delete":
        store.delete("dict://root/x")
    elif operation == "copy":
        store.copy("dict://root/x", "dict://root/z")
    else:
        assert store.head("dict://root/x").size == 1
    assert [name for name, _ in faulty.calls].count(operation) >= 4


def test_pauses_grow_up_to_a_limit(store: RetryingStore, faulty: FaultyStore, clock: Clock) -> None:
    faulty.inject("get", Fault.UNAVAILABLE, times=12)
    faulty.inner.put(URL, b"x")
    assert store.get(URL) == b"x"
    assert clock.pauses[0] <= 0.1
    assert max(clock.pauses) <= 5.0
    assert clock.pauses[6] > clock.pauses[0]


def test_a_store_that_does_not_recover_is_an_error_in_bounded_time(
    store: RetryingStore, faulty: FaultyStore, clock: Clock
) -> None:
    faulty.is_away = True
    with pytest.raises(
        StorageError, match=r"cannot read dict://root/leader/1: no answer.*tried \d+ times in 60 s"
    ) as caught:
        store.get(URL)
    assert clock.now <= 60
    assert "reachable" in caught.value.remedy


def test_a_store_that_recovers_after_half_a_minute_delays_the_request_by_half_a_minute(
    store: RetryingStore, faulty: FaultyStore, clock: Clock
) -> None:
    faulty.is_away = True

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        faulty.is_away = clock.now < 30

    store._sleep = sleep
    store.put(URL, b"x")
    assert 30 <= clock.now <= 36


def test_permanent_errors_are_not_retried(store: RetryingStore, faulty: FaultyStore) -> None:
    faulty.inject("put", Fault.DENIED)
    with pytest.raises(StorageError, match=r"(?s)cannot put .*403.*remedy: check the bucket or path, the credentials"):
        store.put(URL, b"x")
    assert len(faulty.calls) == 1


def test_missing_objects_are_reported_to_the_caller(store: RetryingStore) -> None:
    with pytest.raises(ObjectMissing):
        store.get(URL)


class TestConditionalPut:
    def test_one_of_two_puts_wins(self, store: RetryingStore) -> None:
        assert store.put_if_absent(URL, b"me")
        assert not store.put_if_absent(URL, b"you")
        assert store.get(URL) == b"me"

    def test_a_put_whose_answer_was_lost_wins(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.TIMEOUT_AFTER)
        assert store.put_if_absent(URL, b"me")

    def test_a_put_whose_request_was_lost_is_sent_again(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.TIMEOUT_BEFORE)
        assert store.put_if_absent(URL, b"me")
        assert store.get(URL) == b"me"

    def test_a_put_loses_if_another_object_exists_when_it_is_retried(
        self, store: RetryingStore, faulty: FaultyStore
    ) -> None:
        faulty.inner.put(URL, b"you")
        faulty.inject("put", Fault.TIMEOUT_BEFORE)
        assert not store.put_if_absent(URL, b"me")

    def test_a_412_caused_by_its_own_first_request_is_a_win(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.EXISTS)
        faulty.inner.put(URL, b"me")
        assert store.put_if_absent(URL, b"me")

    def test_a_412_for_an_object_that_no_longer_exists_is_a_loss(
        self, store: RetryingStore, faulty: FaultyStore
    ) -> None:
        faulty.inject("put", Fault.EXISTS)
        assert not store.put_if_absent(URL, b"me")

    def test_a_409_is_retried(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.CONFLICT, times=2)
        assert store.put_if_absent(URL, b"me")

    def test_a_late_put_loses_against_its_own_retry(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.LATE)
        assert store.put_if_absent(URL, b"me")
        outcomes = faulty.land_late()
        assert [type(outcome).__name__ for outcome in outcomes] == ["ObjectExists"]
        assert store.get(URL) == b"me"

    def test_a_put_without_any_answer_has_an_unknown_outcome(self, store: RetryingStore, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.TIMEOUT_AFTER)
        faulty.inject("put", Fault.TIMEOUT_BEFORE, times=10**9)
        with pytest.raises(StorageError, match="no answer"):
            store.put_if_absent(URL, b"me")


def test_copies_between_kinds_of_stores_pass_through_this_machine(store: RetryingStore) -> None:
    other = RetryingStore(DictStore())
    store.put("dict://root/x", b"content")
    store.copy("dict://root/x", "dict://elsewhere/x", other)
    assert other.get("dict://elsewhere/x") == b"content"


def test_one_store_is_opened_for_each_scheme() -> None:
    stores = Stores()
    assert stores.for_url("memory://a/x") is stores.for_url("memory://b/y")
    assert stores.for_url("memory://a/x") is not stores.for_url("file:///b/y")
