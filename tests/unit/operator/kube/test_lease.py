"""Exactly one of several candidates acts, for any behavior of clocks and networks."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_operator.errors import NotLeader, Unavailable
from penstock_operator.kube.cluster import LEASE
from penstock_operator.kube.lease import Leadership, LeaseTimes
from tests.unit.operator.world.faults import Fault
from tests.unit.operator.world.kubernetes.cluster import FakeCluster


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cluster() -> FakeCluster:
    return FakeCluster(Fault(), lambda: "2026-01-01T00:00:00Z")


def candidate(name: str, clock: Clock) -> Leadership:
    return Leadership("ns", "penstock-operator", name, clock=clock)


def attempt(leadership: Leadership, kube: FakeCluster) -> bool:
    return asyncio.run(leadership.attempt(kube))


def test_the_first_candidate_acquires_the_lease_and_the_second_waits() -> None:
    clock, kube = Clock(), cluster()
    one, two = candidate("one", clock), candidate("two", clock)
    assert attempt(one, kube)
    assert not attempt(two, kube)
    one.fence()
    with pytest.raises(NotLeader):
        two.fence()


def test_a_holder_that_cannot_renew_stops_before_another_may_start() -> None:
    clock, kube = Clock(), cluster()
    one, two = candidate("one", clock), candidate("two", clock)
    attempt(one, kube)
    attempt(two, kube)
    clock.now = 10.5
    assert not one.holds(), "given up after ten seconds"
    assert not attempt(two, kube), "free only after fifteen"
    clock.now = 15.5
    assert attempt(two, kube)
    assert not attempt(one, kube)


def test_renewal_keeps_the_lease_forever() -> None:
    clock, kube = Clock(), cluster()
    one, two = candidate("one", clock), candidate("two", clock)
    attempt(one, kube)
    for _ in range(50):
        clock.now += 2
        assert attempt(one, kube)
        assert not attempt(two, kube)
    lease = kube.one("Lease", "penstock-operator", "ns")
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 0


def test_a_released_lease_is_acquired_immediately() -> None:
    clock, kube = Clock(), cluster()
    one, two = candidate("one", clock), candidate("two", clock)
    attempt(one, kube)
    asyncio.run(one.release(kube))
    assert not one.holds()
    assert attempt(two, kube)
    lease = kube.one("Lease", "penstock-operator", "ns")
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 1


def test_the_lease_time_starts_when_the_request_is_sent() -> None:
    clock, kube = Clock(), cluster()
    one = candidate("one", clock)
    answer = kube.create

    async def slowly(manifest: dict[str, object]) -> dict[str, object]:
        result = await answer(manifest)
        clock.now += 9
        return result

    kube.create = slowly  # type: ignore[method-assign]
    assert attempt(one, kube)
    clock.now += 2
    assert not one.holds()


def test_one_missing_answer_of_the_api_server_does_not_lose_the_lease() -> None:
    clock, kube = Clock(), cluster()
    one = candidate("one", clock)
    attempt(one, kube)

    async def away(*_: object) -> None:
        raise Unavailable("away")

    kube.get = away  # type: ignore[assignment, method-assign]
    clock.now = 5
    assert attempt(one, kube)
    clock.now = 11
    assert not attempt(one, kube)


def test_a_change_in_progress_ends_before_another_may_start() -> None:
    clock, kube = Clock(), cluster()
    one = candidate("one", clock)
    attempt(one, kube)
    for now, left in ((0.0, 12.5), (9.9, 2.6)):
        clock.now = now
        assert one.fence() == pytest.approx(left)
    clock.now = 10.1
    with pytest.raises(NotLeader):
        one.fence()


def test_a_holder_without_answers_gives_up_in_time() -> None:
    """The request hangs instead of being refused."""
    kube, times = cluster(), LeaseTimes(timedelta(seconds=3), timedelta(seconds=1), timedelta(seconds=0.1))
    one = Leadership("ns", "penstock-operator", "one", times)

    async def play() -> None:
        assert await one.attempt(kube)
        kube.get = hang  # type: ignore[assignment, method-assign]
        await asyncio.wait_for(one.keep(kube), 30)
        assert not one.holds()

    async def hang(*_: object) -> None:
        await asyncio.sleep(3600)

    asyncio.run(play())


def test_one_request_without_an_answer_does_not_lose_the_lease() -> None:
    """A connection may be dead while a new one would be answered."""
    kube, times = cluster(), LeaseTimes(timedelta(seconds=3), timedelta(seconds=1), timedelta(seconds=0.1))
    one, real = Leadership("ns", "penstock-operator", "one", times), kube.get
    requests = 0

    async def first_hangs(*arguments: object) -> object:
        nonlocal requests
        requests += 1
        if requests == 1:
            await asyncio.sleep(3600)
        return await real(*arguments)  # type: ignore[arg-type]

    async def play() -> None:
        assert await one.attempt(kube)
        kube.get = first_hangs  # type: ignore[assignment, method-assign]
        keeping = asyncio.create_task(one.keep(kube))
        await asyncio.sleep(2)
        assert one.holds()
        assert requests > 2
        keeping.cancel()

    asyncio.run(play())


def test_time_in_which_the_machine_sleeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, real = 0.0, time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + asleep)
    one = Leadership("ns", "penstock-operator", "one")
    attempt(one, cluster())
    assert one.holds()
    asleep = 60.0
    assert not one.holds()


def test_a_lease_with_a_shortened_duration_is_not_acquired_early() -> None:
    clock, kube = Clock(), cluster()
    one, two = candidate("one", clock), candidate("two", clock)
    attempt(one, kube)
    kube.edit("Lease", "ns", "penstock-operator", lambda m: m["spec"].update(leaseDurationSeconds=1))
    attempt(two, kube)
    clock.now = 9
    assert one.holds()
    assert not attempt(two, kube)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 6), st.floats(0.8, 1.25)), max_size=60))
def test_two_candidates_never_act_at_the_same_time(turns: list[tuple[int, float, float]]) -> None:
    """Let candidates try in any order with any pauses, and with clocks that are up to a quarter too fast or too slow."""
    kube = cluster()
    clocks = [Clock(), Clock(), Clock()]
    rates = [1.0, 0.9, 1.1]
    candidates = [candidate(f"c{i}", clock) for i, clock in enumerate(clocks)]

    async def play() -> None:
        for who, pause, _ in turns:
            for clock, rate in zip(clocks, rates, strict=True):
                clock.now += pause * rate
            await candidates[who].attempt(kube)
            assert sum(c.holds() for c in candidates) <= 1
            lease = await kube.get(LEASE, "ns", "penstock-operator")
            holder = next((c.identity for c in candidates if c.holds()), None)
            assert holder in (None, lease["spec"]["holderIdentity"])  # type: ignore[index]

    asyncio.run(play())
