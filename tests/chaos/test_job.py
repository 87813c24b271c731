"""The soak's job obeys its orders, and ends where it is told to."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest

from penstock.connectors.source import ReadBounds
from tests.chaos.job import EndlessSource, EndlessSplitReader, Numbers, Orders, SoakPlan


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


def test_of_many_who_meet_an_order_one_takes_it(plan: SoakPlan) -> None:
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


def test_an_order_that_was_withdrawn_was_not_taken(plan: SoakPlan) -> None:
    orders = Orders(plan.orders)
    orders.give("window", "hang")
    assert orders.withdraw("window")
    assert not orders.withdraw("window")
    orders.obey("window")


def reader_of(plan: SoakPlan, position: int) -> EndlessSplitReader:
    """Of the second split, which begins at index 200; every look at its clock takes a second."""
    now = itertools.count(step=1000)
    reader = EndlessSplitReader(Numbers(plan), range(position, 400), 100.0, lambda: next(now))
    reader.source, reader.begin = EndlessSource(plan), 200
    return reader


@pytest.mark.parametrize("position", [200, 205, 220])
def test_the_input_ends_where_it_is_ordered_to_wherever_it_was_read_from(plan: SoakPlan, position: int) -> None:
    reader = reader_of(plan, position)
    reader.read(ReadBounds(max_records=3))
    Orders(plan.orders).give(Orders.END, "12")
    while (batch := reader.read(ReadBounds(max_records=7))) is not None:
        last = batch.values[-1]
    assert reader.finished
    assert reader.position == 200 + 12 * 2
    assert (last.key, last.number) == (3, 11)


def test_an_end_before_what_was_read_is_a_defect_of_the_soak(plan: SoakPlan) -> None:
    reader = reader_of(plan, 250)
    reader.read(ReadBounds(max_records=3))
    Orders(plan.orders).give(Orders.END, "12")
    with pytest.raises(AssertionError, match="before what was read"):
        reader.read(ReadBounds(max_records=3))
