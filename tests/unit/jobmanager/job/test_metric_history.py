"""The metrics of the last hour. The history is small, and marks unknown values."""

from __future__ import annotations

import math

from penstock.jobmanager.job.metric_history import JobTotals, MetricHistory, VertexTotals


def totals(records: int, busy: tuple[float, ...] = (), watermark: int | None = None) -> VertexTotals:
    made = VertexTotals()
    for ms in busy or (0.0,):
        made.add(records // max(1, len(busy)), 0, ms, 0.0, watermark)
    return made


def test_rates_are_computed_between_two_samples() -> None:
    history = MetricHistory()
    history.add_sample(0, JobTotals(0), {0: totals(0, (0.0, 0.0))}, 2)
    history.add_sample(5_000, JobTotals(1_000, lag=7.0), {0: totals(1_000, (5_000.0, 2_500.0), 4_000)}, 2)
    _, job = history.of_job()
    _, vertex = history.of_vertex(0)
    assert (job["recordsPerSecond"], job["lag"], job["parallelism"]) == ([200.0], [7.0], [2.0])
    assert (vertex["recordsInPerSecond"], vertex["busy"], vertex["busiest"]) == ([200.0], [0.75], [1.0])
    assert vertex["watermarkLag"] == job["watermarkLag"] == [1_000.0]


def test_an_attempt_starts_from_zero_and_earlier_samples_are_kept() -> None:
    history = MetricHistory()
    for at, records in ((0, 0), (5_000, 1_000)):
        history.add_sample(at, JobTotals(records), {0: totals(records)}, 1)
    history.begin_attempt()
    for at, records in ((9_000, 0), (14_000, 500)):
        history.add_sample(at, JobTotals(records), {0: totals(records)}, 1)
    times, job = history.of_job()
    assert (times, job["recordsPerSecond"]) == ([5_000, 14_000], [200.0, 100.0])


def test_the_history_covers_at_most_an_hour() -> None:
    history = MetricHistory(sample_ms=1, samples=100)
    for at in range(1_000):
        history.add_sample(at, JobTotals(at), {0: totals(at), 1: totals(at)}, 1)
    times, series = history.of_vertex(1)
    assert (len(times), times[-1]) == (100, 999)
    assert {len(values) for values in series.values()} == {100}


def test_a_sample_is_due_only_after_an_interval() -> None:
    history = MetricHistory()
    assert history.is_due(0)
    history.add_sample(0, JobTotals(), {}, 1)
    assert [history.is_due(at) for at in (1, 4_999, 5_000)] == [False, False, True]


def test_an_unknown_value_is_not_a_number() -> None:
    history = MetricHistory()
    history.add_sample(0, JobTotals(), {0: totals(0)}, 1)
    history.add_sample(5_000, JobTotals(), {0: totals(0)}, 1)
    assert math.isnan(history.of_job()[1]["lag"][0])
    assert math.isnan(history.of_vertex(0)[1]["watermarkLag"][0])
