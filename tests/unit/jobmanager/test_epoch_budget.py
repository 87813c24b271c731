"""An epoch reads what the operators can process in seconds, however slow they are; fast ones are not held up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jobmanager.epoch_budget import LONGEST_S, EpochBudget

MOST = 1_000_000


def epochs(budget: EpochBudget, rate: float, count: int, fixed_s: float = 0.1) -> list[float]:
    """How long epochs take whose operators process so many records per second."""
    took = []
    for _ in range(count):
        read = budget.records
        took.append(fixed_s + read / rate)
        budget.on_epoch(read, took[-1])
    return took


@pytest.mark.parametrize("rate", [1, 20, 100, 3_000, 50_000])
def test_epochs_of_slow_operators_are_short_after_the_first(rate: float) -> None:
    budget = EpochBudget(MOST)
    assert max(epochs(budget, rate, 20)[1:]) <= 1.5 * LONGEST_S
    assert budget.is_bound


def test_fast_operators_are_bound_by_nothing_from_the_third_epoch_on() -> None:
    budget = EpochBudget(MOST)
    epochs(budget, 2_000_000, 2)
    assert not budget.is_bound


@given(rates=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10))
def test_the_budget_follows_the_pace(rates: list[float]) -> None:
    budget = EpochBudget(MOST)
    for rate in rates:
        took = epochs(budget, rate, 8)
        assert took[-1] <= max(1.5 * LONGEST_S, 2 / rate)
        assert 1 <= budget.records <= MOST


def test_an_epoch_with_little_input_changes_nothing() -> None:
    budget = EpochBudget(MOST)
    epochs(budget, 100.0, 5)
    before = budget.records
    budget.on_epoch(0, 0.1)
    budget.on_epoch(before // 2, 0.1)
    assert budget.records == before
