from __future__ import annotations

import threading

import pytest

from penstock.metrics.reading import JobManagerScope, JobScope, SubtaskScope, TaskManagerScope
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.metrics.task import TaskMetrics

SUBTASK = SubtaskScope("job", "v", 0)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def store(clock: Time) -> MetricStore:
    return MetricStore(host="master", clock=clock)


def report(store: MetricStore, *, subtask: int = 0, attempt: int = 1, **values: object) -> None:
    store.report(SubtaskReport("job", "v", subtask, attempt, **values))  # type: ignore[arg-type]


def test_counts_of_epochs_add_up_and_have_a_rate_of_the_last_ten_seconds(store: MetricStore, clock: Time) -> None:
    for n in range(61):
        report(store, io={"numRecordsIn": 100 if n <= 30 else 10})
        clock.now += 1
    values = store.values(SUBTASK)
    assert values["numRecordsIn"] == 31 * 100 + 30 * 10
    assert values["numRecordsInPerSecond"] == pytest.approx(10)


def test_a_job_that_stops_reporting_falls_to_a_rate_of_zero(store: MetricStore, clock: Time) -> None:
    report(store, io={"numRecordsIn": 0})
    for _ in range(10):
        clock.now += 1
        report(store, io={"numRecordsIn": 100})
    assert store.rate("job", ["v"], "numRecordsIn") == pytest.approx(100)
    clock.now += 5
    assert store.rate("job", ["v"], "numRecordsIn") == pytest.approx(600 / 11)
    clock.now += 10
    assert store.rate("job", ["v"], "numRecordsIn") == 0


def test_rates_do_not_fall_between_two_reports_of_long_epochs(store: MetricStore, clock: Time) -> None:
    for _ in range(5):
        report(store, io={"numRecordsIn": 400, "busyTimeMs": 4000})
        clock.now += 4
    [load] = store.loads("job", "v")
    assert (load.in_per_second, load.busy) == (100, 1)
    clock.now += 20
    assert store.rate("job", ["v"], "numRecordsIn") == 0


def test_a_new_attempt_starts_from_zero_without_the_old_one(store: MetricStore) -> None:
    report(store, attempt=1, io={"numRecordsIn": 100})
    report(store, attempt=2, io={"numRecordsIn": 5})
    report(store, attempt=1, io={"numRecordsIn": 100})
    assert store.total("job", ["v"], "numRecordsIn") == 5


def test_unchanged_user_metrics_keep_their_values(store: MetricStore, clock: Time) -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f-1", "My Filter")
    hits, misses = group.counter("hits"), group.counter("misses")
    hits.inc(3)
    report(store, user=metrics.snapshot())
    misses.inc()
    report(store, user=metrics.snapshot())
    assert store.values(SUBTASK) == {"My_Filter.hits": 3, "My_Filter.misses": 1}


def test_a_meter_returns_the_rate_over_its_time_span(store: MetricStore, clock: Time) -> None:
    metrics = TaskMetrics()
    meter = metrics.operator_group("f", "F").meter("events", time_span_in_seconds=30)
    for n in range(101):
        report(store, user=metrics.snapshot())
        clock.now += 1
        meter.mark_event(8 if n < 50 else 2)
    values = store.values(SUBTASK)
    assert values["F.events"] == pytest.approx(2)
    assert values["F.events_count"] == 50 * 8 + 50 * 2


def test_percentiles_of_a_distribution_cover_the_last_minute(store: MetricStore, clock: Time) -> None:
    metrics = TaskMetrics()
    latency = metrics.operator_group("f", "F").distribution("latency")
    for n in range(300):
        latency.update(1000 if n < 200 else 10)
        report(store, user=metrics.snapshot())
        clock.now += 1
    values = store.values(SUBTASK)
    assert values["F.latency_max"] == pytest.approx(10, rel=0.03)
    assert values["F.latency_p99"] == pytest.approx(10, rel=0.03)
    assert values["F.latency_count"] == 300


def test_removed_subtasks_of_a_rescale_are_dropped(store: MetricStore) -> None:
    for subtask in range(4):
        report(store, subtask=subtask, io={"numRecordsIn": 1})
    store.describe_job("job", "count", {"v": ("Source", 2)})
    assert store.subtasks("job", "v") == [SubtaskScope("job", "v", 0), SubtaskScope("job", "v", 1)]


def test_facts_are_kept_by_scope(store: MetricStore) -> None:
    store.set_facts(JobManagerScope(), {"taskSlotsTotal": 4})
    store.set_facts(TaskManagerScope("tm"), {"rss": 10})
    store.set_facts(JobScope("job"), {"numRestarts": 1})
    store.set_facts(JobScope("job"), {"uptime": 5})
    assert store.values(JobManagerScope()) == {"taskSlotsTotal": 4}
    assert store.values(TaskManagerScope("tm")) == {"rss": 10}
    assert store.values(JobScope("job")) == {"numRestarts": 1, "uptime": 5}
    store.keep_task_managers(["other"])
    assert store.values(TaskManagerScope("tm")) == {}


def test_an_unknown_metric_has_no_value(store: MetricStore) -> None:
    assert store.values(JobScope("none")) == {}
    assert store.values(SUBTASK) == {}
    assert store.rate("none", ["v"], "numRecordsIn") == 0


def test_old_copies_are_dropped(store: MetricStore, clock: Time) -> None:
    for _ in range(5000):
        report(store, io={"numRecordsIn": 1})
        clock.now += 0.2
    series = store._jobs["job"].subtasks["v", 0]
    assert len(series._copies) <= 35


def test_metrics_can_be_read_and_written_at_the_same_time(store: MetricStore) -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "F")
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                store.collect()
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(300):
        group.counter(f"c{n}").inc()
        report(store, subtask=n % 8, io={f"io{n}": 1}, user=metrics.snapshot())
    done.set()
    reader.join()
    assert not failures
