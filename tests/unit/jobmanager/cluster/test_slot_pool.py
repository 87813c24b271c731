"""The slot pool, in which a slot belongs to one job at a time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import NotEnoughSlots
from penstock.jobmanager.cluster.slot_pool import WAIT_S, SlotPool

SLOTS = ["0", "1", "2", "3"]


def test_jobs_get_different_slots_and_see_only_the_remaining_ones() -> None:
    pool = SlotPool()
    assert pool.place("a", 2, SLOTS) == ["0", "1"]
    assert pool.available("b", SLOTS) == ["2", "3"]
    assert pool.available("a", SLOTS) == SLOTS
    assert pool.place("b", 2, SLOTS) == ["2", "3"]
    assert pool.available("c", SLOTS) == []


def test_a_job_that_does_not_get_enough_slots_keeps_its_former_ones() -> None:
    pool = SlotPool()
    pool.place("a", 3, SLOTS)
    pool.place("b", 1, SLOTS)
    with pytest.raises(NotEnoughSlots, match="needs 2 slots, but only 1 of 4 slots are available"):
        pool.place("b", 2, SLOTS)
    assert pool.available("a", SLOTS) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("count", "slots", "expected"),
    [
        (2, ["0", "1", "2"], ["0", "1"]),
        (3, ["0", "1", "2"], ["0", "1", "2"]),
        (1, ["0", "1", "2"], ["0"]),
        (2, ["1", "2"], ["2", "1"]),  # slot 0 was lost; subtask 1 keeps its slot
        (2, ["2", "3"], ["2", "3"]),
    ],
)
def test_a_job_keeps_its_slots(count: int, slots: list[str], expected: list[str]) -> None:
    pool = SlotPool()
    pool.place("a", 2, SLOTS)
    assert pool.place("a", count, slots) == expected
    assert pool.available("b", slots) == [slot for slot in slots if slot not in expected]


def test_a_lost_subtask_returns_to_its_machine_if_a_slot_is_free() -> None:
    pool = SlotPool()
    machines = {"0.0": "a", "0.1": "a", "1.0": "b", "2.0": "c", "3.0": "a", "4.0": "b"}
    assert pool.place("job", 3, ["0.0", "0.1", "1.0"], machines) == ["0.0", "0.1", "1.0"]
    assert pool.place("job", 3, ["2.0", "4.0", "3.0"], machines) == ["3.0", "2.0", "4.0"]
    pool.release("job")
    assert pool.place("job", 1, ["2.0", "3.0"], machines) == ["2.0"]


def test_released_slots_are_available_to_others() -> None:
    pool = SlotPool()
    pool.place("a", 4, SLOTS)
    pool.release("a")
    assert pool.place("b", 4, SLOTS) == SLOTS
    pool.release("never there")


def test_needs_are_summed_even_before_a_slot_is_assigned() -> None:
    pool = SlotPool()
    assert pool.need("a", 2) == 2
    assert pool.need("b", 3) == 5
    assert pool.need("a", 4) == 7
    pool.place("a", 1, SLOTS)  # rescaled down
    assert pool.need("c", 1) == 5
    pool.release("b")
    assert pool.need("c", 1) == 2


def test_a_waiting_job_gets_its_slots_before_later_jobs_that_need_fewer() -> None:
    pool = SlotPool()
    pool.place("a", 2, SLOTS)
    pool.place("b", 2, SLOTS)
    assert pool.available("large", SLOTS, wanted=3) == []
    assert pool.available("small", SLOTS, wanted=1) == []
    pool.release("a")
    assert pool.available("small", SLOTS, wanted=1) == []
    with pytest.raises(NotEnoughSlots):
        pool.place("small", 1, SLOTS)
    assert len(pool.available("large", SLOTS, wanted=3)) == 2
    pool.release("b")
    assert len(pool.available("small", SLOTS, wanted=1)) == 1
    pool.place("large", 3, SLOTS)
    pool.place("small", 1, SLOTS)


def test_a_job_with_a_higher_priority_is_first() -> None:
    pool = SlotPool()
    pool.place("a", 4, SLOTS)
    for name, priority in (("low", 0), ("high", 5), ("middle", 1)):
        pool.available(name, SLOTS, wanted=3, priority=priority)
    pool.release("a")
    found = {
        name: len(pool.available(name, SLOTS, 3, priority))
        for name, priority in (("low", 0), ("high", 5), ("middle", 1))
    }
    assert found == {"high": 4, "middle": 1, "low": 0}


def test_a_restarting_job_is_ahead_of_later_jobs() -> None:
    pool = SlotPool()
    pool.place("old", 2, SLOTS)
    pool.place("a", 2, SLOTS)
    pool.available("new", SLOTS, wanted=1)
    left = ["1", "2", "3"]  # slot 0 of the old job is lost
    pool.available("old", left, wanted=2)
    pool.release("a")
    assert len(pool.available("new", left, wanted=1)) == 1
    assert pool.available("old", left, wanted=2) == left


def test_a_running_job_grows_only_with_slots_that_no_job_waits_for() -> None:
    pool = SlotPool()
    pool.place("grows", 1, SLOTS)
    pool.place("a", 2, SLOTS)
    pool.available("waits", SLOTS, wanted=2)
    assert pool.available("grows", SLOTS) == ["0"]
    pool.release("a")
    assert len(pool.available("grows", SLOTS)) == 2


@pytest.mark.parametrize("leaves", ["release", "cancel_request", "silence", "too large"])
def test_a_job_that_does_not_wait_reserves_nothing(leaves: str) -> None:
    now = 0.0
    pool = SlotPool(lambda: now)
    pool.place("a", 3, SLOTS)
    pool.available("waits", SLOTS, wanted=5 if leaves == "too large" else 3)
    if leaves == "release":
        pool.release("waits")
    elif leaves == "cancel_request":
        pool.cancel_request("waits")
    elif leaves == "silence":
        assert pool.available("b", SLOTS, wanted=1) == []
        now = WAIT_S + 1
    assert pool.available("b", SLOTS, wanted=1) == ["3"]


@given(
    total=st.integers(1, 8),
    arrivals=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2), st.integers(1, 6)), max_size=25),
    order=st.randoms(use_true_random=False),
)
def test_no_job_starts_with_slots_that_a_job_ahead_of_it_waits_for(
    total: int, arrivals: list[tuple[int, int, int]], order: Random
) -> None:
    """Simulate jobs that arrive one by one, ask in random order, run for some rounds and end."""
    pool = SlotPool()
    slots = [str(number) for number in range(total)]
    waiting: dict[int, tuple[int, int]] = {}
    running: dict[int, int] = {}
    held: dict[int, list[str]] = {}
    rounds = 0
    while rounds < len(arrivals) or waiting:
        if rounds < len(arrivals):
            count, priority, _ = arrivals[rounds]
            if count <= total:
                waiting[rounds] = count, priority
                pool.available(rounds, slots, count, priority)
        rounds += 1
        assert rounds < 1000, f"never started: {waiting}"
        asking = list(waiting)
        order.shuffle(asking)
        for job in asking:
            count, priority = waiting[job]
            if len(pool.available(job, slots, count, priority)) < count:
                continue
            free = total - sum(map(len, held.values()))
            ahead = sum(of[0] for other, of in waiting.items() if (-of[1], other) < (-priority, job))
            assert count + ahead <= free
            held[job] = pool.place(job, count, slots)
            running[job] = arrivals[job][2]
            del waiting[job]
        taken = [slot for of in held.values() for slot in of]
        assert len(taken) == len(set(taken))
        if waiting:  # the first job waits only if its slots are in use
            first = min(waiting, key=lambda job: (-waiting[job][1], job))
            assert waiting[first][0] > total - len(taken)
        for job in [job for job, left in running.items() if left <= 1]:
            del running[job], held[job]
            pool.release(job)
        running = {job: left - 1 for job, left in running.items()}
