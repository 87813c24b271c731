"""The slot pool, in which a slot belongs to one job at a time."""

from __future__ import annotations

import pytest

from penstock.common.errors import NotEnoughSlots
from penstock.jobmanager.cluster.slot_pool import SlotPool

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
