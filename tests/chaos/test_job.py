"""The soak's job obeys its orders, and ends at the ordered place."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.connectors.core.source import ReadBounds
from penstock.taskmanager.worker import ManualClock
from tests.chaos.faults.orders import Orders
from tests.chaos.job import EndlessSource, EndlessSplitReader, Numbers, SoakPlan


@pytest.fixture
def plan(tmp_path: Path) -> SoakPlan:
    return SoakPlan(per_key=100, orders=str(tmp_path), keys=8, splits=4)


def test_an_order_is_taken_once(plan: SoakPlan) -> None:
    orders = Orders(plan.orders)
    orders.give("check", "raise")
    orders.obey("sink")
    assert not orders.is_taken("check")
    with pytest.raises(ValueError, match="ordered check to raise"):
        orders.obey("check")
    assert orders.is_taken("check")
    orders.obey("check")


def test_concurrent_readers_take_an_order_once(plan: SoakPlan) -> None:
    orders = Orders(plan.orders)
    orders.give("check", "raise")
    raised = []

    def meet() -> None:
        try:
            orders.obey("check")
        except ValueError as error:
            raised.append(error)

    threads = [threading.Thread(target=meet) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(raised) == 1
    assert os.listdir(plan.orders) == []


def test_a_withdrawn_order_counts_as_not_taken(plan: SoakPlan) -> None:
    orders = Orders(plan.orders)
    orders.give("window", "hang")
    assert orders.withdraw("window")
    assert not orders.withdraw("window")
    orders.obey("window")


class SecondPerCall(ManualClock):
    """A clock that each call moves forward by one second."""

    def monotonic_ms(self) -> int:
        self.set(self.now_ms() + 1000)
        return super().monotonic_ms()


def reader_of(plan: SoakPlan, position: int) -> EndlessSplitReader:
    """Return a reader of the second split, which begins at index 200."""
    reader = EndlessSplitReader(Numbers(plan), range(position, 400), 100.0, SecondPerCall())
    reader.source, reader.begin = EndlessSource(plan), 200
    return reader


@pytest.mark.parametrize("position", [200, 205, 220])
def test_the_input_ends_at_the_ordered_place_from_every_position(plan: SoakPlan, position: int) -> None:
    reader = reader_of(plan, position)
    reader.read(ReadBounds(max_records=3))
    Orders(plan.orders).give(Orders.END, "12")
    while (batch := reader.read(ReadBounds(max_records=7))) is not None:
        last = batch.values[-1]
    assert reader.finished
    assert reader.position == 200 + 12 * 2
    assert (last.key, last.number) == (3, 11)


def test_an_end_before_the_current_position_is_a_defect_of_the_soak(plan: SoakPlan) -> None:
    reader = reader_of(plan, 250)
    reader.read(ReadBounds(max_records=3))
    Orders(plan.orders).give(Orders.END, "12")
    with pytest.raises(AssertionError, match="before the current position"):
        reader.read(ReadBounds(max_records=3))
