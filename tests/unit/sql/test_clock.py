"""SQL in processing time, and the lifetime of state, on the clock of the harness."""

from __future__ import annotations

import pytest

from penstock.sql.plan.reading import read_plan
from penstock.testing import JobHarness
from tests.unit.sql.test_stored_plans import build

SECOND = 1000


@pytest.fixture(params=["hashmap", "rocksdb"])
def harness(request):
    with JobHarness(backend=request.param) as created:
        yield created


def at(harness, second: float, table: str, *rows) -> None:
    """Push rows when the clock shows this second."""
    harness.advance_processing_time(to=int(second * SECOND))
    harness.push(table, *rows)
    harness.run()


def test_an_interval_join_in_processing_time_joins_rows_that_arrive_near_each_other(harness):
    build(harness, "clock-interval")
    at(harness, 10, "arrivals", (1, "a", 1))
    at(harness, 11, "arrivals", (2, "a", 5), (3, None, 9))
    at(harness, 14, "arrivals", (4, "a", 7))
    harness.advance_processing_time(to=60 * SECOND)
    assert sorted(harness.outputs("result"), key=str) == [(1, 2), (2, None), (3, None), (4, None)]


def test_a_window_in_processing_time_ends_with_the_clock(harness):
    build(harness, "clock-tumble")
    at(harness, 1, "arrivals", (1, "a", 1), (2, "a", 1))
    at(harness, 4.999, "arrivals", (3, "a", 1))
    assert harness.outputs("result") == []
    at(harness, 5, "arrivals", (4, "b", 1))
    assert harness.take("result") == [(0, "a", 3)]
    harness.advance_processing_time(to=11 * SECOND)
    assert harness.take("result")[-1] == (5_000_000, "b", 1)


def test_sessions_in_processing_time_end_after_the_gap(harness):
    build(harness, "clock-session")
    at(harness, 1, "arrivals", (1, "a", 1))
    at(harness, 2.5, "arrivals", (2, "a", 1))
    at(harness, 6, "arrivals", (3, "a", 1))
    harness.advance_processing_time(to=20 * SECOND)
    assert harness.outputs("result") == [(1_000_000, 4_500_000, "a", 2), (6_000_000, 8_000_000, "a", 1)]


def test_windows_of_the_older_syntax_run_in_processing_time(harness):
    build(harness, "clock-group")
    at(harness, 1, "arrivals", (1, "a", 4), (2, "b", None))
    at(harness, 7, "arrivals", (3, "b", 5))
    harness.advance_processing_time(to=20 * SECOND)
    assert harness.outputs("result") == [(0, 4), (5_000_000, 5)]


def test_a_range_in_processing_time_loses_old_rows(harness):
    build(harness, "clock-range")
    at(harness, 1, "arrivals", (1, "a", 1), (2, "a", 10))
    at(harness, 3, "arrivals", (3, "a", 100))
    snapshot = harness.snapshot()
    harness.restore(snapshot)
    at(harness, 6, "arrivals", (4, "a", 1000))
    at(harness, 30, "arrivals", (5, "a", 7))
    harness.advance_processing_time(to=60 * SECOND)
    assert harness.outputs("result") == [(1, 11), (2, 11), (3, 111), (4, 1100), (5, 7)]


def test_rows_of_one_millisecond_are_sorted(harness):
    build(harness, "clock-sort")
    at(harness, 1, "arrivals", (1, "a", 5), (2, "a", 3))
    at(harness, 2, "arrivals", (3, "a", 1))
    harness.advance_processing_time(to=9 * SECOND)
    assert harness.outputs("result") == [(2, 3), (1, 5), (3, 1)]


def test_each_side_of_a_join_has_its_ttl(harness):
    build(harness, "clock-ttl")
    harness.push("readings", (1, "a", 7, None, None, 0, 0))
    harness.push("others", (100, "a", 7, None, 0))
    harness.run()
    assert harness.take("result") == [(1, 100)]
    at(harness, 15, "others", (101, "a", 7, None, 0))
    assert harness.take("result") == []
    at(harness, 16, "readings", (2, "a", 7, None, None, 0, 0))
    assert sorted(harness.take("result")) == [(2, 100), (2, 101)]


def _reach(harness, second: int) -> None:
    """Let event time reach a second, with rows of another key. The watermark is 5 s behind them."""
    micros = (second + 5) * 1_000_000
    harness.push("rates", ("other", None, micros))
    harness.push("readings", (0, "other", 0, None, None, micros, 0))
    harness.run()


@pytest.mark.parametrize("name", ["temporal-table", "over-unbounded-rows"])
def test_a_ttl_outside_of_the_plan_clears_the_state_of_a_key(name, monkeypatch):
    monkeypatch.setattr("tests.unit.sql.test_stored_plans.read_plan", lambda text: read_plan(text, ttl_ms=10 * SECOND))
    with JobHarness() as harness:
        build(harness, name)
        harness.push("rates", ("a", None, 1_000_000))
        harness.push("readings", (1, "a", 7, None, None, 2_000_000, 0))
        _reach(harness, 3)
        harness.advance_processing_time(to=60 * SECOND)
        harness.push("readings", (2, "a", 1, None, None, 4_000_000, 0))
        _reach(harness, 10)
        found = [row for row in harness.outputs("result") if row[0] > 0]
    if name == "temporal-table":
        assert found == [(1, None), (2, None)]
    else:
        assert [row[3:] for row in found] == [(7, 1, None), (1, 1, None)]
