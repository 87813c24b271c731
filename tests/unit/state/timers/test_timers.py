"""Timers: once per key, namespace and time, in order, and part of the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.factory import create_timer_service
from penstock.state.key_groups import key_group
from tests.unit.state.support import MAX_PARALLELISM, Backends, at


class Timers:
    """A timer service that records the fired timers."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.service: Any = create_timer_service(backend)
        self.fired: list[tuple[str, int, Any, Any]] = []
        self.then: Any = None
        self.service.set_callbacks(self._on("event"), self._on("processing"))

    def _on(self, domain: str) -> Any:
        def on_timer(timestamp: int, key: Any, namespace: Any) -> None:
            assert (self.backend.key_context.key, self.backend.key_context.namespace) == (key, namespace)
            self.fired.append((domain, timestamp, key, namespace))
            if self.then is not None:
                self.then(timestamp, key)

        return on_timer

    def event(self, key: Any, *timestamps: int, namespace: Any = None) -> None:
        for timestamp in timestamps:
            at(self.backend, key, namespace)
            self.service.register_event_time_timer(timestamp)

    def delete(self, key: Any, timestamp: int, namespace: Any = None) -> None:
        at(self.backend, key, namespace)
        self.service.delete_event_time_timer(timestamp)

    def take(self) -> list[tuple[int, Any]]:
        fired, self.fired = self.fired, []
        return [(timestamp, key) for _, timestamp, key, _ in fired]


@pytest.fixture
def timers(tmp_path: Path) -> Timers:
    return Timers(Backends("hashmap", tmp_path).create())


def test_timers_fire_in_order_of_time_up_to_the_watermark(timers: Timers) -> None:
    timers.event("a", 30, 10, 20, 40)
    timers.event("b", 20)
    timers.service.advance_watermark(30)
    assert timers.take() == [(10, "a"), (20, "a"), (20, "b"), (30, "a")]
    assert timers.service.current_watermark == 30
    assert list(timers.service.event_time_timers()) == [(40, "a", None)]
    timers.service.advance_watermark(39)
    assert timers.take() == []


def test_a_timer_is_unique_per_time_key_and_namespace(timers: Timers) -> None:
    timers.event("a", 10, 10, 10)
    timers.event("a", 10, namespace=(0, 5))
    timers.service.advance_watermark(10)
    assert [(ts, key, ns) for _, ts, key, ns in timers.fired] == [(10, "a", None), (10, "a", (0, 5))]


def test_keys_that_cannot_be_compared_may_have_timers_of_the_same_time(timers: Timers) -> None:
    """The comparison of a numpy number with a tuple returns an array."""
    for key in (np.int64(5), (1, True), np.int64(5)):
        timers.event(key, 10)
    timers.service.advance_watermark(10)
    assert [time for _, time, _, _ in timers.fired] == [10, 10]


def test_event_and_processing_time_are_separate(timers: Timers) -> None:
    at(timers.backend, "a")
    timers.service.register_event_time_timer(10)
    timers.service.register_processing_time_timer(5)
    timers.service.register_processing_time_timer(7)
    assert timers.service.next_processing_time() == 5
    timers.service.delete_processing_time_timer(5)
    timers.service.delete_processing_time_timer(99)
    assert timers.service.next_processing_time() == 7
    timers.service.advance_processing_time(100)
    assert timers.fired == [("processing", 7, "a", None)]
    assert timers.service.next_processing_time() is None
    assert timers.service.current_processing_time() == 0


def test_deleted_timers_do_not_fire(timers: Timers) -> None:
    timers.event("a", 10, 20)
    timers.event("b", 10)
    timers.delete("a", 10)
    timers.delete("c", 10)
    timers.service.advance_watermark(20)
    assert timers.take() == [(10, "b"), (20, "a")]


def test_timers_registered_by_timers_fire_if_they_are_due(timers: Timers) -> None:
    def then(timestamp: int, key: Any) -> None:
        if timestamp < 50:
            timers.service.register_event_time_timer(timestamp + 10)
        if timestamp == 10 and key == "a":
            timers.event("new", 10)

    timers.then = then
    timers.event("a", 10)
    timers.service.advance_watermark(35)
    assert timers.take() == [(10, "a"), (10, "new"), (20, "a"), (20, "new"), (30, "a"), (30, "new")]
    assert [t for t, _, _ in timers.service.event_time_timers()] == [40, 40]


def test_an_earlier_timer_registered_by_a_timer_fires_next(timers: Timers) -> None:
    timers.then = lambda timestamp, key: timers.event("early", 5) if key == "a" else None
    timers.event("a", 10)
    timers.event("b", 10)
    timers.service.advance_watermark(20)
    assert timers.take() == [(10, "a"), (5, "early"), (10, "b")]


def test_a_timer_may_delete_others_of_the_same_time(timers: Timers) -> None:
    def then(timestamp: int, key: Any) -> None:
        if key == "a":
            timers.delete("b", 10)
            timers.delete("c", 10)
            timers.event("d", 10)

    timers.then = then
    timers.event("a", 10)
    timers.event("b", 10)
    timers.event("c", 10)
    timers.service.advance_watermark(10)
    assert timers.take() == [(10, "a"), (10, "d")]


def test_a_timer_may_register_itself_again(timers: Timers) -> None:
    def then(timestamp: int, key: Any) -> None:
        if len(timers.fired) < 3:
            timers.event("a", 10)

    timers.then = then
    timers.event("a", 10)
    timers.service.advance_watermark(10)
    assert timers.take() == [(10, "a")] * 3


def test_timers_that_move_repeatedly_do_not_accumulate(timers: Timers) -> None:
    for i in range(20_000):
        timers.event("a", 1_000_000 + i)
        timers.delete("a", 1_000_000 + i - 1)
    assert sum(map(len, timers.backend.event_time_timers._slots.values())) < 2_000
    timers.service.advance_watermark(2_000_000)
    assert timers.take() == [(1_019_999, "a")]


def test_no_changes_are_collected_without_snapshots(timers: Timers) -> None:
    for i in range(1000):
        timers.event(i, i)
        timers.service.advance_watermark(i)
    assert timers.backend.event_time_timers.change_count() == 0


@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_follow_their_keys(backends: Backends, parallelism: int) -> None:
    timers = Timers(backends.create())
    for i in range(40):
        timers.event(f"k{i}", i % 7 * 10, namespace=(0, i) if i % 2 else None)
        timers.service.register_processing_time_timer(i)
    backends.snapshot(timers.backend, 1)
    timers.service.advance_watermark(20)
    timers.delete("k4", 40)
    timers.event("k4", 41)
    timers.service.advance_processing_time(10)
    handle = backends.snapshot(timers.backend, 2)
    restored = [Timers(backend) for backend in backends.restored([handle], parallelism)]
    for domain in ("event", "processing"):
        expected = sorted(getattr(timers.service, f"{domain}_time_timers")(), key=repr)
        found = [t for other in restored for t in getattr(other.service, f"{domain}_time_timers")()]
        assert sorted(found, key=repr) == expected
        assert len(expected) > 10
    for other in restored:
        for _, key, _ in other.service.event_time_timers():
            assert key_group(key, MAX_PARALLELISM) in other.backend.key_group_range


def test_processing_time_timers_that_became_due_before_a_restore_fire_immediately(backends: Backends) -> None:
    timers = Timers(backends.create())
    at(timers.backend, "a")
    timers.service.register_processing_time_timer(100)
    handle = backends.snapshot(timers.backend)
    (backend,) = backends.restored([handle])
    after = Timers(backend)
    after.service.advance_processing_time(5_000)
    assert after.fired == [("processing", 100, "a", None)]


def test_timers_that_exist_only_between_snapshots_cost_nothing(tmp_path: Path) -> None:
    backends = Backends("hashmap", tmp_path)
    timers = Timers(backends.create())
    timers.event("a", 10)
    backends.snapshot(timers.backend, 1)
    for i in range(500):
        timers.event(f"k{i}", 1000 + i)
        timers.delete(f"k{i}", 1000 + i)
        timers.event(f"k{i}", 5)
        timers.service.advance_watermark(5)
    assert backends.snapshot(timers.backend, 2)["bytes_uploaded"] < 200


@pytest.mark.parametrize("name", ["hashmap", "rocksdb"])
def test_a_timer_later_than_the_end_of_time_fires_with_the_final_watermark(name: str, tmp_path: Path) -> None:
    timers = Timers(Backends(name, tmp_path).create())
    timers.event("a", 2**63 + 5)
    timers.event("b", 2**63 + 7)
    timers.delete("b", 2**63 + 7)
    timers.service.advance_watermark(2**63 - 2)
    assert timers.take() == []
    timers.service.advance_watermark(2**63 - 1)
    assert timers.take() == [(2**63 - 1, "a")]


moments = st.integers(0, 5000)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from("abc"), moments),
        st.tuples(st.just("delete"), st.sampled_from("abc"), moments),
        st.tuples(st.just("advance"), st.just(""), moments),
    ),
    max_size=60,
)


@given(acts=acts, then=st.lists(st.tuples(st.sampled_from(["register", "delete"]), moments), max_size=8))
@settings(max_examples=200, deadline=None)
def test_the_earliest_due_timer_always_fires_next(acts: list[Any], then: list[Any]) -> None:
    """The timers are compared with a set that is searched. Every second timer that fires registers or deletes one of
    its key."""
    timers = Timers(Backends("hashmap", Path("/nowhere")).create())
    waiting: set[tuple[int, str]] = set()
    fired: list[tuple[int, str]] = []
    rest = list(then)
    timers.backend.event_time_timers.track(on=True)

    def do(act: str, key: str, time: int) -> None:
        if act == "register":
            timers.event(key, time)
            waiting.add((time, key))
        else:
            timers.delete(key, time)
            waiting.discard((time, key))

    def on_timer(time: int, key: str) -> None:
        assert (time, key) in waiting
        assert time == min(waiting)[0]
        waiting.remove((time, key))
        fired.append((time, key))
        if rest and len(fired) % 2:
            act, moment = rest.pop()
            do(act, key, moment)

    timers.then = on_timer
    for act, key, time in acts:
        if act == "advance":
            timers.service.advance_watermark(time)
            assert all(waits > time for waits, _ in waiting)
        else:
            do(act, key, time)
    assert {(time, key) for time, key, _ in timers.service.event_time_timers()} == waiting
    timers.service.advance_watermark(2**63 - 1)
    assert timers.take() == fired
