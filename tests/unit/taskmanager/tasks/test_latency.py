"""Latency markers wait with the records, bypass functions and windows, and are reported by source and operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import ReduceFunction
from penstock.datastream.window import TumblingProcessingTimeWindows
from penstock.graph.transformation import Exchange, Partitioning
from penstock.jobmanager.job.job_master import JobMaster
from penstock.metrics.reading import SubtaskScope
from penstock.records.batch import RowBatch
from penstock.rest.clock import now_ms
from penstock.taskmanager.exchange.rows import DATA, LATENCY, LatencyMarker, decode_latency
from penstock.taskmanager.exchange.writers import create_writer
from tests.in_process import environment, started, until
from tests.unit.taskmanager.support import exchange


def latencies(master: JobMaster) -> dict[str, Any]:
    """Return the counts of all latency distributions by name, added up over subtasks."""
    found: dict[str, Any] = {}
    for stage in master.graph.stages:
        for index in range(stage.parallelism):
            values: dict[str, Any] = master.metrics.store.values(SubtaskScope(master.job_id, str(stage.id), index))
            for name, value in values.items():
                if name.endswith("latency_count"):
                    found[name] = found.get(name, 0) + value
                    assert 0 <= values[name.replace("count", "max")] < 60_000
    return found


def windowed(folder: Path, **settings: str) -> JobMaster:
    """Run a source, a function, a window that does not fire and a sink, with two exchanges."""
    env = environment(folder, **{"parallelism.default": "2", **settings})
    numbers = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").uid("numbers")
    hours = numbers.key_by(lambda value: value % 4).window(TumblingProcessingTimeWindows.of(3_600_000)).reduce(Sum())
    hours.name("hours").rebalance().map(lambda value: value).name("plain").print().name("shown")
    return started(env)


class Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


def ended(master: JobMaster) -> None:
    from penstock.jobmanager.job.requests import Operation

    master.request(Operation("cancel"))
    master.wait(30)


def test_every_operator_reports_its_latency_even_after_a_window(tmp_path: Path) -> None:
    master = windowed(tmp_path, **{"metrics.latency.interval": "20 ms"})
    names = {f"{name}.source_id.numbers.latency_count" for name in ("hours", "plain", "shown")}
    until(lambda: all(latencies(master).get(name, 0) >= 6 for name in names), master)
    assert set(latencies(master)) == names
    ended(master)


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("single", {"plain.latency_count"}),
        ("subtask", {f"plain.source_id.numbers.source_subtask_index.{n}.latency_count" for n in (0, 1)}),
    ],
)
def test_the_granularity_of_the_metric_is_configurable(tmp_path: Path, granularity: str, expected: set[str]) -> None:
    master = windowed(tmp_path, **{"metrics.latency.interval": "20 ms", "metrics.latency.granularity": granularity})
    until(lambda: expected <= set(latencies(master)), master)
    assert {name for name in latencies(master) if name.startswith("plain.")} == expected
    ended(master)


def test_no_markers_exist_by_default(tmp_path: Path) -> None:
    master = windowed(tmp_path)
    until(lambda: master.metrics.epochs > 5, master)
    assert latencies(master) == {}
    ended(master)


KINDS = [Exchange.KEY_GROUP, Exchange.REBALANCE, Exchange.BROADCAST, Exchange.GLOBAL, Exchange.FORWARD]


@pytest.mark.parametrize("kind", KINDS)
def test_a_marker_waits_behind_the_records_for_its_target(kind: Exchange) -> None:
    sent: list[tuple[int, bytes]] = []
    by_key = (lambda value: value, 0) if kind is Exchange.KEY_GROUP else ()
    writer = create_writer(exchange(Partitioning(kind, *by_key), 3), 1, lambda target, row: sent.append((target, row)))
    writer.write(RowBatch(list(range(30)), None))
    marker = LatencyMarker(7, 1, float(now_ms()))
    writer.latency(marker)
    assert [row for _, row in sent if row[0] == LATENCY] == []
    assert writer.has_unflushed
    writer.flush()
    marked = [(target, row) for target, row in sent if row[0] == LATENCY]
    assert [decode_latency(row) for _, row in marked] == [marker]
    to = marked[0][0]
    assert [row[0] for target, row in sent if target == to][-1] == LATENCY
    assert not [row for target, row in sent if target == to and row[0] == DATA][1:]
    assert not writer.has_unflushed


def test_targets_get_markers_in_turn() -> None:
    sent: list[int] = []
    writer = create_writer(exchange(Partitioning(Exchange.REBALANCE), 3), 0, lambda target, row: sent.append(target))
    for _ in range(6):
        writer.latency(LatencyMarker(0, 0, 0.0))
        writer.flush()
    assert sent[-6:] == [0, 1, 2, 0, 1, 2]
