"""An epoch reads as many records as the operators can process in seconds. Fast operators are not limited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.config import options
from penstock.jobmanager.job.epoch_budget import LONGEST_S, EpochBudget

MAX_RECORDS = 1_000_000


def epochs(budget: EpochBudget, rate: float, count: int, fixed_s: float = 0.1) -> list[float]:
    """Return the durations of epochs whose operators process `rate` records per second."""
    took = []
    for _ in range(count):
        read = budget.records
        took.append(fixed_s + read / rate)
        budget.on_epoch(read, took_s=took[-1], busy_s=read / rate)
    return took


@pytest.mark.parametrize("rate", [1, 20, 100, 3_000, 50_000])
def test_epochs_of_slow_operators_are_short_after_the_first(rate: float) -> None:
    budget = EpochBudget(MAX_RECORDS, levels=2)
    assert max(epochs(budget, rate, 20)[1:]) <= 1.5 * LONGEST_S
    assert budget.is_bound


def test_the_first_epoch_ends_in_time_for_operators_of_any_speed() -> None:
    """One record takes a second, or sixteen subtasks feed a sink that takes 25 records per second."""
    limit_s = options.FIRST_EPOCH_TIMEOUT.default.total_seconds()
    for rate in (1.0, 25 / 16):
        assert epochs(EpochBudget(MAX_RECORDS, levels=2), rate, 1)[0] < limit_s / 2


@pytest.mark.parametrize("fixed_s", [0.1, 2.5])
def test_fast_operators_are_unlimited_from_the_third_epoch(fixed_s: float) -> None:
    """This also holds if Spark starts jobs slowly. The first records take longer than later ones."""
    budget = EpochBudget(MAX_RECORDS, levels=2)
    budget.on_epoch(budget.records, took_s=fixed_s + 0.2, busy_s=0.2)
    epochs(budget, 500_000, 1, fixed_s)
    assert not budget.is_bound


def test_a_job_of_one_level_is_unlimited() -> None:
    budget = EpochBudget(MAX_RECORDS, levels=1)
    assert not budget.is_bound
    epochs(budget, 1.0, 1)
    assert not budget.is_bound


def test_time_that_tasks_do_not_count_is_measured_with_the_clock() -> None:
    """The records are large: the exchange takes the time, not the operators."""
    budget = EpochBudget(MAX_RECORDS, levels=2)
    for _ in range(6):
        read = budget.records
        budget.on_epoch(read, took_s=0.1 + read / 100, busy_s=read / 10_000)
    assert 0.1 + budget.records / 100 <= 1.5 * LONGEST_S


@given(rates=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10))
def test_the_budget_follows_the_throughput(rates: list[float]) -> None:
    budget = EpochBudget(MAX_RECORDS, levels=2)
    for rate in rates:
        took = epochs(budget, rate, 8)
        assert took[-1] <= max(1.5 * LONGEST_S, 2 / rate)
        assert 1 <= budget.records <= MAX_RECORDS


def test_an_epoch_with_little_input_keeps_the_budget() -> None:
    budget = EpochBudget(MAX_RECORDS, levels=2)
    epochs(budget, 100.0, 5)
    before = budget.records
    budget.on_epoch(0, took_s=0.1, busy_s=0.0)
    budget.on_epoch(before // 2, took_s=0.1, busy_s=0.1)
    assert budget.records == before


@pytest.mark.parametrize("fixed_s", [4.5, 10.0, 60.0])
def test_the_fixed_cost_of_an_epoch_does_not_starve_the_job(fixed_s: float) -> None:
    budget = EpochBudget(MAX_RECORDS, levels=2)
    budget.on_epoch(12, took_s=fixed_s, busy_s=0.1)
    epochs(budget, 1_000.0, 12, fixed_s)
    assert budget.records >= 1_000


def test_a_source_that_reads_due_records_catches_up_after_slow_epochs() -> None:
    budget = EpochBudget(MAX_RECORDS, levels=2)
    backlog = 0.0
    for _ in range(40):
        read = min(budget.records, int(backlog) + 24)
        took = 5.0 + read / 10_000
        budget.on_epoch(read, took_s=took, busy_s=read / 10_000)
        backlog += 100 * took - read
    assert backlog <= 1_000
