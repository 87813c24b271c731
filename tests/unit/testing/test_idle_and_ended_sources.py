"""A source without records at the moment has not ended: event time remains at the last records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.http.source import HttpPollSource
from penstock.connectors.kafka.source.kafka_source import KafkaSource
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.connectors.sqs.source import SqsSource
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.records.batch import RowBatch
from penstock.taskmanager.protocol import SourceProgress
from penstock.testing import JobHarness

LATE = OutputTag("late")
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value)
IDLE = STRATEGY.with_idleness(timedelta(seconds=1))


class Pause(Source):
    """A source with one split: some records at processing time 0, the others at 60 s. It has no discovery and never
    ends."""

    bounded = False

    def __init__(self, before: list[int], after: list[int]) -> None:
        self.records = [(0, value) for value in before] + [(60_000, value) for value in after]

    def create_enumerator(self) -> SplitEnumerator:
        return OneSplit()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        assert context.operator is not None
        return Reader(self.records, context.operator.clock.now_ms)


class OneSplit(SplitEnumerator):
    def discover(self) -> list[Split]:
        return [Split("0")]


class Reader(SourceReader):
    def __init__(self, records: list[tuple[int, int]], now: Callable[[], int]) -> None:
        self.records, self.now = records, now

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return PausingSplit(self.records, self.now, position or 0)


class PausingSplit(SplitReader):
    def __init__(self, records: list[tuple[int, int]], now: Callable[[], int], position: int) -> None:
        self._records, self._now, self._next = records, now, position

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        due = [value for at, value in self._records[self._next :] if at <= self._now()]
        self._next += len(due)
        return RowBatch(due) if due else None

    @property
    def position(self) -> int:
        return self._next

    @property
    def finished(self) -> bool:
        return False

    def next_record_at(self) -> int | None:
        return self._records[self._next][0] if self._next < len(self._records) else None


def windows_of(harness: JobHarness, stream: Any) -> None:
    windows = stream.key_by(lambda value: 0).window(TumblingEventTimeWindows.of(timedelta(seconds=10)))
    summed = windows.side_output_late_data(LATE).reduce(lambda a, b: a + b)
    harness.collect(summed, "sums")
    harness.collect(summed.get_side_output(LATE), "late")


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_a_quiet_period_makes_no_record_late_if_subtasks_have_no_splits(parallelism: int) -> None:
    with JobHarness(parallelism) as harness:
        source = Pause([1_000], [2_000, 12_000, 22_000])
        windows_of(harness, harness.environment().from_source(source, IDLE, "pausing").map(lambda value: value))
        harness.advance_processing_time(to=30_000)
        harness.advance_processing_time(to=90_000)
        assert harness.outputs("late") == []
        assert harness.outputs("sums")[:1] == [3_000]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_ended_history_makes_no_record_of_an_idle_live_stream_late(parallelism: int) -> None:
    with JobHarness(parallelism) as harness:
        history = harness.source("history", STRATEGY)
        live = harness.source("live", IDLE)
        windows_of(harness, history.union(live).map(lambda value: value))
        harness.push("live", 500)
        harness.push("history", 1_000, 9_000)
        harness.advance_processing_time(by=5_000)
        harness.close("history")
        harness.advance_processing_time(by=5_000)
        harness.push("live", 9_500, 15_000)
        harness.advance_processing_time(by=50)
        harness.push("live", 25_000)
        harness.advance_processing_time(by=5_000)
        assert harness.outputs("late") == []
        assert harness.outputs("sums") == [500 + 1_000 + 9_000 + 9_500, 15_000]
        assert harness.status is None


def test_history_and_a_live_stream_emit_all_windows_after_both_have_ended() -> None:
    with JobHarness(2) as harness:
        windows_of(harness, harness.source("history", STRATEGY).union(harness.source("live", IDLE)))
        harness.push("history", 1_000)
        harness.push("live", 90_000)
        harness.close("history")
        harness.advance_processing_time(by=5_000)
        assert harness.status is None
        harness.close("live")
        assert sorted(harness.outputs("sums")) == [1_000, 90_000]
        assert harness.status is JobStatus.FINISHED


def http_poll() -> Source:
    return HttpPollSource("http://localhost:1/readings", JsonLinesFormat(), interval=1_000)


def kafka_without_discovery() -> Source:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("t").set_group_id("g")
    builder.set_property("partition.discovery.interval.ms", "-1")
    return builder.set_value_only_deserializer(JsonLinesFormat()).build()


def sqs() -> Source:
    return SqsSource("http://localhost:1/q", JsonLinesFormat(), region="eu-west-1", exactly_once=True)


def rabbitmq() -> Source:
    config = RMQConnectionConfig.Builder().set_host("localhost").set_port(1).set_user_name("u").set_password("p")
    return RMQSource(config.set_virtual_host("/").build(), "queue", True, JsonLinesFormat())


def generator() -> Source:
    return DataGeneratorSource(lambda index: index)


@pytest.mark.parametrize("make", [http_poll, kafka_without_discovery, sqs, rabbitmq, generator])
def test_subtasks_of_an_unbounded_source_without_splits_do_not_end(
    make: Callable[[], Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make()
    assert not source.bounded
    coordinator = SourceCoordinator("source", source)
    coordinator.start_attempt(2, None)
    monkeypatch.setattr(coordinator._enumerator, "discover", lambda: [Split("0")])
    coordinator.discover(0)
    coordinator.take_assignments()
    assert not coordinator.ends_without_splits
    coordinator.close()


def test_a_bounded_source_ends_per_subtask_and_an_unbounded_one_as_a_whole() -> None:
    for bounded in (True, False):
        source = Pause([1], [])
        source.bounded = bounded
        coordinator = SourceCoordinator("source", source)
        coordinator.start_attempt(2, None)
        assert not coordinator.ends_without_splits
        coordinator.discover(0)
        coordinator.take_assignments()
        assert coordinator.ends_without_splits is bounded
        coordinator.on_progress(0, SourceProgress(finished=["0"]))
        assert coordinator.ends_without_splits
        coordinator.close()
