"""The metrics of a Kafka source while it reads: the lag and the event time of each partition."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.kafka.source.reader import MOST_WAITING
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.kafka.support import fill, new_name, records, sink, source, topic
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka


def ended(master: Any) -> None:
    master.request(Operation("cancel"))
    master.wait(30)


def gauges(master: Any, name: str) -> dict[str, float]:
    """Return a gauge's values of the source's partitions by number, as REST reports them."""
    form = re.compile(rf".*KafkaSourceReader\.topic\.in-\w+\.partition\.(\d+)\.{name}")
    values = [one for scope in master.metrics.store.collect() for one in scope.values().items()]
    return {found[1]: value for id, value in values if (found := form.fullmatch(id))}


def lag(master: Any) -> int | None:
    """Return the lag of the whole source, as the dashboard shows it. None means that no lag was reported yet."""
    coordinator = master.parts.sources.get("in")
    found: int | None = None if coordinator is None else coordinator.describe(1).lag
    return found


def test_each_partition_reports_its_lag_and_committed_offset(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 2, "in"), topic(kafka)
    fill(kafka.bootstrap_servers, reads, records(100), 2)
    env = environment(tmp_path)
    built = source(kafka.bootstrap_servers, reads).set_group_id(new_name("group")).build()
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.sink_to(sink(kafka.bootstrap_servers, writes).build()).uid("out")
    master = started(env)
    until(lambda: gauges(master, "committedOffset") == {"0": 50, "1": 50}, master)
    until(lambda: gauges(master, "recordsLag") == {"0": 0, "1": 0}, master)
    facts = master.parts.sources["in"].describe(10)
    assert facts.lag == 0
    assert sorted((split.position, split.lag) for split in facts.splits) == [("50", 0), ("50", 0)]
    ended(master)


def test_unread_records_count_as_lag(kafka: KafkaServer, tmp_path: Path) -> None:
    reads = topic(kafka, 1, "in")
    fill(kafka.bootstrap_servers, reads, records(20_000))
    env = environment(tmp_path)
    built = source(kafka.bootstrap_servers, reads).build()
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in").uid("in")
    Stays.may_go_on = False
    stream.map(Stays()).sink_to(sink(kafka.bootstrap_servers, topic(kafka)).build())
    master = started(env)
    until(lambda: (lag(master) or 0) > 1_000, master)
    until(lambda: (master.parts.sources["in"].describe(1).splits[0].lag or 0) > 1_000, master)
    Stays.may_go_on = True
    until(lambda: lag(master) == 0, master)
    ended(master)


class Stays:
    """A map function that is slow until it may continue."""

    may_go_on = False

    def __call__(self, value: Any) -> Any:
        if not Stays.may_go_on:
            time.sleep(0.001)  # the delay per record
        return value


class Lateness(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield ctx.timestamp(), ctx.timer_service().current_watermark()


def test_a_partition_that_is_ahead_does_not_make_records_of_others_late(kafka: KafkaServer, tmp_path: Path) -> None:
    reads = topic(kafka, 2, "in")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for n in range(25_000):
        for partition in range(2):
            producer.produce(reads, b'{"id": %d}' % n, partition=partition, timestamp=1 + n * 10 + 10**6 * partition)
        if n % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    env = environment(tmp_path, **{"restart-strategy.type": "none", "penstock.runner": "in-process"})
    env.get_config().set_auto_watermark_interval(1)  # otherwise a fast run ends before the first watermark
    built = source(kafka.bootstrap_servers, reads).set_bounded(KafkaOffsetsInitializer.latest()).build()
    stream = env.from_source(built, WatermarkStrategy.for_monotonous_timestamps(), "in")
    seen = list(stream.process(Lateness()).execute_and_collect())
    assert len(seen) == 50_000
    assert not [(at, mark) for at, mark in seen if at <= mark]
    assert max(mark for _, mark in seen) > 0


class Waits(KeyedProcessFunction):
    """A function that waits until event time is just before that of the records."""

    until_ms: int | None = None

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() - 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        Waits.until_ms = timestamp


def test_a_partition_without_messages_holds_the_clock_back_only_until_it_counts_as_idle(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    reads = topic(kafka, 2, "in")
    fill(kafka.bootstrap_servers, reads, records(10), 1, timestamp=5_000)
    env = environment(tmp_path)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(500))
    built = source(kafka.bootstrap_servers, reads).set_value_only_deserializer(JsonLinesFormat()).build()
    stream = env.from_source(built, strategy, "in").uid("in")
    Waits.until_ms = None
    stream.key_by(lambda record: 0).process(Waits()).sink_to(sink(kafka.bootstrap_servers, topic(kafka)).build())
    master = started(env)
    until(lambda: Waits.until_ms == 4_999, master)
    ended(master)


def test_a_partition_without_a_reader_is_paused_and_later_read_without_a_gap(kafka: KafkaServer) -> None:
    """Watermark alignment pauses a partition like this."""
    reads, count = topic(kafka, 2, "in"), 120_000
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 1_000_000})
    for n in range(count):
        for partition in range(2):
            producer.produce(reads, b"%d" % n, partition=partition)
    assert producer.flush(60) == 0
    built = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(reads)
    built = built.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    read_by = built.build()
    reader = read_by.create_reader(ReaderContext(0, 1, "uid"))
    opened: list[Any] = [reader.open_split(split, None) for split in read_by.create_enumerator().discover()]
    for split in opened:
        values: list[str] = []

        def is_read(split: Any = split, values: list[str] = values) -> bool:
            batch = split.read(ReadBounds(max_records=5_000))
            values += [] if batch is None else batch.rows().values
            assert opened[1]._inbox.waiting <= MOST_WAITING + 10_000
            return bool(split.finished)

        deadline = time.monotonic() + 60
        while not is_read():
            assert time.monotonic() < deadline
        assert values == [str(n) for n in range(count)]
        assert opened[1]._inbox.is_paused == (split is opened[0])
    reader.close()
