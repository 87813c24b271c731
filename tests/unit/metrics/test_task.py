from __future__ import annotations

import logging
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from penstock.metrics.key import decode_key
from penstock.metrics.task import TaskMetrics

if TYPE_CHECKING:
    from penstock.functions.operator_context import MetricSink


def plain(snapshot: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the values of all sections by name."""
    return {
        decode_key(k).name: v for section, found in snapshot.items() if section != "names" for k, v in found.items()
    }


def test_a_counter_in_a_user_group_counts_dropped_elements() -> None:
    metrics = TaskMetrics({"host": "localhost", "tm_id": "512", "job_name": "job", "subtask_index": "0"})
    group = metrics.operator_group("filter", "PositiveFilter").add_group("MyMetrics")
    counter = group.counter("droppedElements")
    for value in (1, -1, -2, 3):
        if value <= 0:
            counter.inc()
    assert plain(metrics.snapshot()) == {"droppedElements": 2}
    assert group.get_metric_identifier("myCounter") == (
        "localhost.taskmanager.512.job.PositiveFilter.0.MyMetrics.myCounter"
    )


def test_a_snapshot_contains_only_changes() -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "Filter")
    counter, meter, distribution = group.counter("c"), group.meter("m", 30), group.distribution("d")
    value = {"gauge": -(2**63)}
    group.gauge("g", lambda: value["gauge"])
    first = metrics.snapshot()
    assert first["names"] == {"f": "Filter"}
    assert plain(first) == {"c": 0, "m": (0, 30), "d": (0, 0.0, 0.0, 0.0, 0.0, {}), "g": -(2**63)}
    assert metrics.snapshot() == {}
    meter.mark_event(2)
    assert plain(metrics.snapshot()) == {"m": (2, 30)}
    counter.inc()
    value["gauge"] = 7
    assert plain(metrics.snapshot()) == {"c": 1, "g": 7}
    distribution.update(3)
    assert list(plain(metrics.snapshot())) == ["d"]


def test_a_snapshot_can_be_encoded_as_msgpack() -> None:
    metrics = TaskMetrics()
    metrics.operator_group("f", "Filter").add_group("room", "kitchen").distribution("d").update(3)
    snapshot = metrics.snapshot()
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot))
    assert msgspec.msgpack.encode(decoded) == msgspec.msgpack.encode(snapshot)


def test_the_same_name_gives_the_same_metric() -> None:
    group = TaskMetrics().operator_group("f", "Filter")
    assert group.counter("c") is group.counter("c")
    assert group.add_group("x").counter("c") is not group.counter("c")
    assert group.add_group("x", "1").counter("c") is not group.add_group("x", "2").counter("c")


def test_a_name_of_another_metric_type_is_logged_and_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "Filter")
    group.counter("c").inc(3)
    group.meter("c").mark_event()
    assert plain(metrics.snapshot()) == {"c": 3}
    assert "the metric name 'c' is taken by a Counter" in caplog.text


def test_a_gauge_that_raises_has_no_value_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = TaskMetrics()
    metrics.operator_group("f", "Filter").gauge("g", lambda: 1 // 0)
    with caplog.at_level(logging.WARNING):
        assert "g" not in metrics.snapshot()
        metrics.snapshot()
    assert caplog.text.count("ZeroDivisionError: ") == 1


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (True, True),
        (1.5, 1.5),
        ("text", "text"),
        (Fraction(1, 4), 0.25),
        ([1, 2], "[1, 2]"),
        (2**70, 2.0**70),
        ("\ud800ä", "?ä"),
    ],
)
def test_a_gauge_reports_numbers_and_readable_text(value: object, reported: object) -> None:
    metrics = TaskMetrics()
    metrics.operator_group("f", "Filter").gauge("g", lambda: value)
    assert plain(metrics.snapshot()) == {"g": reported}


def test_a_key_value_group_adds_a_variable_and_both_scope_components() -> None:
    group = TaskMetrics({"host": "h"}).operator_group("f", "Filter").add_group("room", "kitchen")
    assert group.get_all_variables() == {
        "<host>": "h",
        "<operator_id>": "f",
        "<operator_name>": "Filter",
        "<room>": "kitchen",
    }
    assert group.get_scope_components()[-2:] == ["room", "kitchen"]


def test_operators_get_the_task_group() -> None:
    sink: MetricSink = TaskMetrics().operator_group("f", "Filter")
    sink.add_group("x").counter("n").inc()


def test_a_snapshot_of_fifty_unchanged_metrics_is_cheap() -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "Filter")
    for n in range(50):
        group.counter(f"c{n}").inc()
    metrics.snapshot()
    started = time.process_time()
    for _ in range(1000):
        metrics.snapshot()
    assert (time.process_time() - started) / 1000 < 200e-6


@pytest.mark.parametrize(("added", "reported"), [(np.int64(5), 5), (2**70, 2.0**70), (np.float32(0.5), 0.5)])
def test_counters_and_meters_report_any_added_number(added: int, reported: float) -> None:
    metrics = TaskMetrics()
    group = metrics.operator_group("f", "Filter")
    group.counter("c").inc(added)
    group.meter("m").mark_event(added)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.snapshot()))
    assert plain(sent) == {"c": reported, "m": [reported, 60]}
