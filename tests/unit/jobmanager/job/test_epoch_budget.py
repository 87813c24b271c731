"""An epoch reads what the operators can process in seconds, however slow they are; fast ones are not held up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.config import options
from penstock.jobmanager.job.epoch_budget import LONGEST_S, EpochBudget

MOST = 1_000_000


def epochs(budget: EpochBudget, rate: float, count: int, fixed_s: float = 0.1) -> list[float]:
    """How long epochs take whose operators process so many records per second."""
    took = []
    for _ in range(count):
        read = budget.records
        took.append(fixed_s + read / rate)
        budget.on_epoch(read, took_s=took[-1], busy_s=read / rate)
    return took


@pytest.mark.parametrize("rate", [1, 20, 100, 3_000, 50_000])
def test_epochs_of_slow_operators_are_short_after_the_first(rate: float) -> None:
    budget = EpochBudget(MOST, levels=2)
    assert max(epochs(budget, rate, 20)[1:]) <= 1.5 * LONGEST_S
    assert budget.is_bound


def test_the_first_epoch_is_over_in_time_however_slow_the_operators_are() -> None:
    """A second for each record, or sixteen subtasks before a sink of 25 records a second."""
    limit_s = options.FIRST_EPOCH_TIMEOUT.default.total_seconds()
    for rate in (1.0, 25 / 16):
        assert epochs(EpochBudget(MOST, levels=2), rate, 1)[0] < limit_s / 2


@pytest.mark.parametrize("fixed_s", [0.1, 2.5])
def test_fast_operators_are_bound_by_nothing_from_the_third_epoch_on(fixed_s: float) -> None:
    """Where Spark takes its time to start a job, too; the first records take longer than others."""
    budget = EpochBudget(MOST, levels=2)
    budget.on_epoch(budget.records, took_s=fixed_s + 0.2, busy_s=0.2)
    epochs(budget, 500_000, 1, fixed_s)
    assert not budget.is_bound


def test_a_job_of_one_level_is_bound_by_nothing() -> None:
    budget = EpochBudget(MOST, levels=1)
    assert not budget.is_bound
    epochs(budget, 1.0, 1)
    assert not budget.is_bound


def test_what_the_tasks_do_not_count_is_found_out_by_the_clock() -> None:
    """Large records: the exchange takes the time, not the operators."""
    budget = EpochBudget(MOST, levels=2)
    for _ in range(6):
        read = budget.records
        budget.on_epoch(read, took_s=0.1 + read / 100, busy_s=read / 10_000)
    assert 0.1 + budget.records / 100 <= 1.5 * LONGEST_S


@given(rates=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10))
def test_the_budget_follows_the_pace(rates: list[float]) -> None:
    budget = EpochBudget(MOST, levels=2)
    for rate in rates:
        took = epochs(budget, rate, 8)
        assert took[-1] <= max(1.5 * LONGEST_S, 2 / rate)
        assert 1 <= budget.records <= MOST


def test_an_epoch_with_little_input_changes_nothing() -> None:
    budget = EpochBudget(MOST, levels=2)
    epochs(budget, 100.0, 5)
    before = budget.records
    budget.on_epoch(0, took_s=0.1, busy_s=0.0)
    budget.on_epoch(before // 2, took_s=0.1, busy_s=0.1)
    assert budget.records == before


@pytest.mark.parametrize("fixed_s", [4.5, 10.0, 60.0])
def test_what_an_epoch_takes_whatever_it_reads_does_not_starve_the_job(fixed_s: float) -> None:
    budget = EpochBudget(MOST, levels=2)
    budget.on_epoch(12, took_s=fixed_s, busy_s=0.1)
    epochs(budget, 1_000.0, 12, fixed_s)
    assert budget.records >= 1_000


def test_a_source_that_reads_what_is_due_catches_up_behind_slow_epochs() -> None:
    budget = EpochBudget(MOST, levels=2)
    backlog = 0.0
    for _ in range(40):
        read = min(budget.records, int(backlog) + 24)
        took = 5.0 + read / 10_000
        budget.on_epoch(read, took_s=took, busy_s=read / 10_000)
        backlog += 100 * took - read
    assert backlog <= 1_000
