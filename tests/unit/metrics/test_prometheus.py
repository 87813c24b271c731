from __future__ import annotations

import re
from collections import Counter as Tally

import pytest

from penstock.metrics.prometheus import exposition
from penstock.metrics.reading import JobManagerScope, JobScope, TaskManagerScope
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.metrics.task import TaskMetrics

LINE = re.compile(r'^([a-zA-Z_][a-zA-Z0-9_]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*\})? (\S+)$')


def page_of(*names: str, tags: tuple[tuple[str, str], ...] = ()) -> str:
    metrics = TaskMetrics()
    group = metrics.operator_group("f-1", "Filter")
    for name, value in tags:
        group = group.add_group(name, value)
    for name in names:
        group.counter(name).inc()
    store = MetricStore(clock=lambda: 0.0)
    store.describe_job("j" * 32, "job", {"v": ("Source", 1)})
    store.report(SubtaskReport("j" * 32, "v", 0, 1, user=metrics.snapshot()))
    return exposition(store.collect())


def check(page: str) -> dict[str, str]:
    """Return the value of every series. Fail on a line that Prometheus would refuse, and on a repeated series or TYPE."""
    series: Tally[str] = Tally()
    types: Tally[str] = Tally()
    values: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            types[line.split()[2]] += 1
            continue
        match = LINE.match(line)
        assert match, f"not Prometheus' format: {line}"
        series[match[1] + (match[2] or "")] += 1
        values[match[1] + (match[2] or "")] = match[3]
    assert not [name for name, n in (series + types).items() if n > 1]
    return values


def test_a_user_counter_has_the_scope_as_labels() -> None:
    name = "penstock_taskmanager_job_task_operator_droppedElements"
    (series,) = check(page_of("droppedElements"))
    assert series.startswith(name + "{")
    assert 'operator_id="f-1",operator_name="Filter"' in series
    assert 'subtask_index="0"' in series
    assert f'job_id="{"j" * 32}"' in series


def test_names_that_become_equal_are_distinguished() -> None:
    first = check(page_of("a_b", "a.b", "a-b"))
    names = {series.split("{")[0] for series in first}
    assert len(names) == 3
    assert "penstock_taskmanager_job_task_operator_a_b" in names
    assert first == check(page_of("a-b", "a.b", "a_b"))


def test_a_summary_has_separate_sum_and_count() -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "F")
    group.counter("latency_count").inc(7)
    group.distribution("latency").update(5)
    store = MetricStore(clock=lambda: 0.0)
    store.report(SubtaskReport("job", "v", 0, 1, user=metrics.snapshot()))
    check(exposition(store.collect()))


@pytest.mark.parametrize("value", ['quote " here', "back\\slash", "two\nlines", "ü 日本"])
def test_label_values_are_escaped(value: str) -> None:
    (series,) = check(page_of("n", tags=(("room", value),)))
    assert "\n" not in series


@pytest.mark.parametrize("label", ["host", "quantile", "__name__", "1st", "job id", "ключ"])
def test_label_names_are_valid_and_distinct(label: str) -> None:
    (series,) = check(page_of("n", tags=((label, "x"), (label, "y"))))
    assert 'job_name="job"' in series
    assert '="x"' in series
    assert '="y"' in series


def test_only_numbers_of_every_scope_are_reported() -> None:
    store = MetricStore(host="m", clock=lambda: 0.0)
    store.set_facts(JobManagerScope(), {"taskSlotsTotal": 4, "version": "1", "nothing": None})
    store.set_facts(TaskManagerScope("tm"), {"rss": float("inf")})
    store.set_facts(JobScope("j"), {"isRestarting": True})
    assert check(exposition(store.collect())) == {
        'penstock_jobmanager_taskSlotsTotal{host="m"}': "4",
        'penstock_taskmanager_rss{tm_id="tm"}': "+Inf",
        'penstock_jobmanager_job_isRestarting{host="m",job_id="j",job_name=""}': "1",
    }


def test_counters_of_the_engine_are_counters_and_those_of_users_are_gauges() -> None:
    store = MetricStore(clock=lambda: 0.0)
    store.report(SubtaskReport("j", "v", 0, 1, io={"numRecordsIn": 3}))
    page = exposition(store.collect()) + page_of("mine")
    assert "# TYPE penstock_taskmanager_job_task_numRecordsIn counter" in page
    assert "# TYPE penstock_taskmanager_job_task_operator_mine gauge" in page


def test_the_page_is_empty_without_metrics() -> None:
    assert exposition([]) == ""
