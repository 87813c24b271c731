from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.histogram import LogHistogram, Summary, summarise

FINITE = st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False)


def histogram_of(values: list[float]) -> LogHistogram:
    histogram = LogHistogram()
    histogram.add_all(values)
    return histogram


@given(st.lists(FINITE, min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_two_percent_of_a_value_of_that_rank(values: list[float], q: float) -> None:
    exact = sorted(values)[int(q * (len(values) - 1))]
    assert histogram_of(values).quantile(q) == pytest.approx(exact, rel=0.021, abs=1e-300)


@given(st.lists(FINITE), st.lists(FINITE))
def test_adding_histograms_is_the_histogram_of_all_values(left: list[float], right: list[float]) -> None:
    both = histogram_of(left).plus(histogram_of(right))
    together = histogram_of(left + right)
    assert (both.count, both.min, both.max, both.buckets) == (
        together.count,
        together.min,
        together.max,
        together.buckets,
    )


@given(st.lists(FINITE), st.lists(FINITE))
def test_subtracting_an_earlier_state_leaves_the_values_since_then(before: list[float], since: list[float]) -> None:
    earlier = histogram_of(before)
    now = earlier.plus(histogram_of(since))
    recent = now.minus(earlier)
    assert recent.count == len(since)
    assert recent.buckets == histogram_of(since).buckets


def test_the_encoded_form_works_with_json_keys() -> None:
    histogram = histogram_of([1, 2, 0, -5])
    count, total, squares, low, high, buckets = histogram.to_wire()
    wire = [count, total, squares, low, high, {str(k): v for k, v in buckets.items()}]
    assert LogHistogram.from_wire(wire) == histogram


def test_values_that_are_not_numbers_are_ignored() -> None:
    assert histogram_of([float("nan"), float("inf"), -float("inf"), 4.0]).summary().mean == 4.0


def test_an_empty_summary_is_all_zero() -> None:
    assert LogHistogram().summary() == Summary() == summarise([])


def test_the_two_kinds_of_summary_are_equal() -> None:
    chance = random.Random(7)
    values = [chance.lognormvariate(3, 1) for _ in range(5000)]
    exact, approximate = summarise(values), histogram_of(values).summary()
    for name in ("count", "min", "max", "mean", "stddev", "p50", "p75", "p90", "p95", "p98", "p99", "p999"):
        assert getattr(approximate, name) == pytest.approx(getattr(exact, name), rel=0.03), name
