from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measures import load
from benchmarks.measures.live import Arrivals
from benchmarks.measures.load import back_to_normal_s, due_between, percentiles

sys.path.append(str(Path(load.__code__.co_filename).parents[1] / "programs"))

from penstock_load import Plan

PHASES = [(2.0, 100.0), (1.0, 300.0), (2.0, 100.0)]


def test_records_are_due_according_to_the_plan() -> None:
    plan = Plan(PHASES, 0.5)
    assert [plan.due_by(second) for second in (0, 1, 2, 3, 4, 5, 9)] == [0, 50, 100, 250, 300, 350, 350]
    assert [plan.due(number) for number in (0, 50, 100, 175, 250, 300)] == [0, 1, 2, 2.5, 3, 4]


def test_records_that_still_wait_are_included() -> None:
    arrivals = Arrivals(at=np.array([1.0, 2.0, 9.0]), due=np.array([0.5, 1.5, 1.6]))
    found = due_between(arrivals, 1.0, 2.0)
    assert percentiles(found)["worst_ms"] == pytest.approx(7400)


@pytest.mark.parametrize(("backlog_s", "expected"), [(0.0, 0.0), (3.0, 3.0)])
def test_the_system_is_normal_when_half_of_the_records_are_as_fast_as_before_the_burst(
    backlog_s: float, expected: float
) -> None:
    due = np.arange(0, 10, 0.01)
    late = np.where(due < backlog_s, 0.5, 0.002)
    assert back_to_normal_s(Arrivals(due + late, due), 0.0, 10.0, 5.0) == pytest.approx(expected)
