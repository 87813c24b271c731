"""Topics that are deleted or created again during a job: a clear error, or each record of the new topic exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, KafkaSourceBuilder
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.kafka.support import eventually, fill, new_name, read, records, sink, source, topic, values_of
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
SOON = ("partition.discovery.interval.ms", 200)


def job(kafka: KafkaServer, tmp_path: Path, reads: Any, writes: str, attempts: int = 1_000) -> Any:
    """Run a job from a source to a topic, with at most this many restarts."""
    settings = {"type": "fixed-delay", "fixed-delay.delay": "50 ms", "fixed-delay.attempts": str(attempts)}
    env = environment(tmp_path, **{f"restart-strategy.{name}": value for name, value in settings.items()})
    env.set_parallelism(2)
    stream = env.from_source(reads, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.sink_to(sink(kafka.bootstrap_servers, writes).build()).uid("out")
    return started(env)


def ids(kafka: KafkaServer, name: str) -> list[int]:
    return sorted(value["id"] for value in values_of(read(kafka.bootstrap_servers, name)))


def made_again(kafka: KafkaServer, name: str, partitions: int = 1) -> None:
    kafka.delete_topic(name)
    eventually(lambda: kafka.create_topic(name, partitions) is None)


def ended(master: Any) -> None:
    master.request(Operation("cancel"))
    master.wait(30)


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_the_new_topic_is_read_from_its_beginning_each_record_once(
    kafka: KafkaServer, tmp_path: Path, is_hybrid: bool
) -> None:
    name, writes = topic(kafka, 2), topic(kafka)
    fill(kafka.bootstrap_servers, name, records(50), 2)
    reads: Any = source(kafka.bootstrap_servers, name).set_property(*SOON).set_recreated_topics("restart").build()
    if is_hybrid:
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "0.jsonl").write_text('{"id": 0, "key": 0}\n')
        files = FileSource.for_record_stream_format(JsonLinesFormat(), str(tmp_path / "old")).build()
        reads = HybridSource.builder(files).add_source(reads).build()
    before = [0, *range(50)] if is_hybrid else list(range(50))
    master = job(kafka, tmp_path, reads, writes)
    until(lambda: ids(kafka, writes) == before, master)
    made_again(kafka, name, 2)
    fill(kafka.bootstrap_servers, name, records(10, 1_000), 2)
    until(lambda: ids(kafka, writes) == [*before, *range(1_000, 1_010)], master)
    fill(kafka.bootstrap_servers, name, records(100, 1_010), 2)
    until(lambda: ids(kafka, writes) == [*before, *range(1_000, 1_110)], master)
    ended(master)


def of_pattern(kafka: KafkaServer, stem: str) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topic_pattern(f"{stem}.*")
    return builder.set_value_only_deserializer(JsonLinesFormat()).set_property(*SOON)


def two_topics(kafka: KafkaServer) -> tuple[str, str, str]:
    stem = new_name("stem")
    one, two = f"{stem}-1", f"{stem}-2"
    for number, name in enumerate((one, two)):
        kafka.create_topic(name)
        fill(kafka.bootstrap_servers, name, records(10, 10 * number))
    return stem, one, two


def test_a_deleted_topic_of_a_pattern_is_an_error(kafka: KafkaServer, tmp_path: Path) -> None:
    (stem, one, _), writes = two_topics(kafka), topic(kafka)
    master = job(kafka, tmp_path, of_pattern(kafka, stem).build(), writes, attempts=2)
    until(lambda: ids(kafka, writes) == list(range(20)), master)
    kafka.delete_topic(one)
    eventually(lambda: master.is_done, 60, "the job's end")
    assert f"topic '{one}' was deleted while the job was reading it" in str(master.error)
    assert "set_recreated_topics('restart')" in str(master.error)


def test_a_deleted_topic_of_a_pattern_is_skipped_and_read_again_when_it_returns(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    (stem, one, two), writes = two_topics(kafka), topic(kafka)
    master = job(kafka, tmp_path, of_pattern(kafka, stem).set_recreated_topics("restart").build(), writes)
    until(lambda: ids(kafka, writes) == list(range(20)), master)
    kafka.delete_topic(one)
    fill(kafka.bootstrap_servers, two, records(10, 20))
    until(lambda: ids(kafka, writes) == list(range(30)), master)
    eventually(lambda: kafka.create_topic(one) is None)
    fill(kafka.bootstrap_servers, one, records(10, 30))
    until(lambda: ids(kafka, writes) == list(range(40)), master)
    ended(master)


def test_a_bounded_job_does_not_wait_forever_for_a_deleted_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    name, writes = topic(kafka), topic(kafka)
    fill(kafka.bootstrap_servers, name, records(10))
    far = KafkaOffsetsInitializer.offsets({(name, 0): 1_000})  # type: ignore[dict-item]
    master = job(
        kafka, tmp_path, source(kafka.bootstrap_servers, name).set_bounded(far).set_property(*SOON).build(), writes, 0
    )
    until(lambda: ids(kafka, writes) == list(range(10)), master)
    kafka.delete_topic(name)
    eventually(lambda: master.is_done, 60, "the job's end")
    assert "was deleted while the job was reading it" in str(master.error)
