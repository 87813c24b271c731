"""Reading from Kafka: its beginning and end, the records' metadata, and changed partitions, changed topics and bad messages."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from penstock.datastream.formats.changelog import DebeziumJsonFormat
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.streams.data_stream import DataStream
from penstock.jobmanager.job.requests import Operation
from penstock.records.batch import ColumnBatch
from tests.in_process import environment, started, until
from tests.integration.kafka.support import (
    counting,
    eventually,
    fill,
    new_name,
    read,
    records,
    sink,
    source,
    topic,
    values_of,
    verdict,
)
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
END = KafkaOffsetsInitializer.latest()


def texts(kafka: KafkaServer, name: str = "") -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    builder = builder.set_value_only_deserializer(SimpleStringSchema()).set_bounded(END)
    return builder.set_topics(name) if name else builder


def read_all(built: KafkaSource, splits: Any = None, positions: dict[str, Any] | None = None) -> list[Any]:
    """Return all records that one subtask reads."""
    enumerator = built.create_enumerator()
    found = enumerator.discover() if splits is None else splits
    enumerator.close()
    reader = built.create_reader(ReaderContext(0, 1, "uid"))
    values: list[Any] = []
    deadline = time.monotonic() + 30
    opened = [reader.open_split(split, (positions or {}).get(split.id)) for split in found]
    while not all(split.finished for split in opened):
        assert time.monotonic() < deadline
        for split in opened:
            batch = None if split.finished else split.read(ReadBounds())
            if batch is not None:
                values += batch.rows().values
    reader.close()
    return values


def test_changes_that_debezium_has_written_are_rows_with_their_kind(kafka: KafkaServer) -> None:
    """Read the tombstones after deletes too: they are not rows."""
    name = topic(kafka)
    before, after = {"id": 1, "name": "scooter"}, {"id": 1, "name": "car"}
    events = [
        {"op": "c", "before": None, "after": before},
        {"op": "u", "before": before, "after": after},
        {"op": "d", "before": after, "after": None},
    ]
    fill(kafka.bootstrap_servers, name, [*(json.dumps(event).encode() for event in events), None])
    format = DebeziumJsonFormat({"id": int, "name": str})
    rows = read_all(texts(kafka, name).set_value_only_deserializer(format).build())
    assert [f"{row.get_row_kind()} {row.name}" for row in rows] == ["+I scooter", "-U scooter", "+U car", "-D car"]


def test_partitions_are_read_in_order_to_the_end_at_the_start(kafka: KafkaServer) -> None:
    name = topic(kafka, 3)
    fill(kafka.bootstrap_servers, name, [b"%d" % n for n in range(300)], 3)
    values = read_all(texts(kafka, name).build())
    assert sorted(map(int, values)) == list(range(300))
    for partition in range(3):
        mine = [int(value) for value in values if int(value) % 3 == partition]
        assert mine == sorted(mine)


def test_reading_begins_at_the_configured_offsets(kafka: KafkaServer) -> None:
    name, group = topic(kafka), new_name("group")
    fill(kafka.bootstrap_servers, name, [b"0", b"1"], timestamp=1_000)
    fill(kafka.bootstrap_servers, name, [b"2", b"3"], timestamp=2_000)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    consumer.close()
    at = KafkaTopicPartition(name, 0)
    begins = {
        "earliest": (KafkaOffsetsInitializer.earliest(), "0123"),
        "latest": (KafkaOffsetsInitializer.latest(), ""),
        "timestamp": (KafkaOffsetsInitializer.timestamp(1_500), "23"),
        "after all": (KafkaOffsetsInitializer.timestamp(9_000), ""),
        "committed": (KafkaOffsetsInitializer.committed_offsets(), "3"),
        "specific": (KafkaOffsetsInitializer.offsets({at: 1}), "123"),
        "not among the specific": (
            KafkaOffsetsInitializer.offsets({KafkaTopicPartition("other", 0): 1}, KafkaOffsetResetStrategy.EARLIEST),
            "0123",
        ),
    }
    for case, (initializer, expected) in begins.items():
        built = texts(kafka, name).set_group_id(group).set_starting_offsets(initializer).build()
        assert "".join(read_all(built)) == expected, case


def test_a_group_without_offsets_is_an_error_unless_a_start_is_configured(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"0"])
    builder = texts(kafka, name).set_group_id(new_name("group"))
    with pytest.raises(SourceError, match=r"(?s)committed no offsets.*KafkaOffsetResetStrategy"):
        builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build().validate()
    reset = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    assert read_all(builder.set_starting_offsets(reset).build()) == ["0"]


def test_topics_partitions_and_patterns_choose_what_is_read(kafka: KafkaServer) -> None:
    stem = new_name("chosen")
    for name in (f"{stem}-a", f"{stem}-b"):
        kafka.create_topic(name, 2)
        fill(kafka.bootstrap_servers, name, [f"{name[-1]}{n}".encode() for n in range(4)], 2)
    both = [f"{topic}{n}" for topic in "ab" for n in range(4)]
    assert sorted(read_all(texts(kafka).set_topics(f"{stem}-a", f"{stem}-b").build())) == both
    assert sorted(read_all(texts(kafka).set_topic_pattern(f"{stem}-.").build())) == both
    some = {KafkaTopicPartition(f"{stem}-a", 1), KafkaTopicPartition(f"{stem}-b", 0)}
    assert sorted(read_all(texts(kafka).set_partitions(some).build())) == ["a1", "a3", "b0", "b2"]


def test_a_reader_continues_after_its_position(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"%d" % n for n in range(10)])
    built = texts(kafka, name).build()
    splits = built.create_enumerator().discover()
    assert read_all(built, splits, {splits[0].id: 7}) == ["7", "8", "9"]


def test_read_committed_skips_records_of_aborted_transactions(kafka: KafkaServer) -> None:
    from confluent_kafka import Producer

    name = topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": new_name("t")})
    producer.init_transactions(30)
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    assert read_all(texts(kafka, name).build()) == ["a", "b", "c"]
    assert read_all(texts(kafka, name).set_property("isolation.level", "read_committed").build()) == ["a", "c"]


def test_records_can_have_key_headers_time_and_offset(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"v"], key=b"k", headers=[("h", b"x")], timestamp=12_345)
    whole = KafkaRecordDeserializationSchema.of(lambda record: record)
    (record,) = read_all(texts(kafka, name).set_deserializer(whole).build())
    assert tuple(record) == (name, 0, 0, 12_345, b"k", b"v", [("h", b"x")])


def test_json_values_come_as_columns_with_the_time_of_their_messages(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [{"id": n, "x": n / 2} for n in range(100)], timestamp=5_000)
    built = source(kafka.bootstrap_servers, name, {"id": int, "x": float}).set_bounded(END).build()
    reader = built.create_reader(ReaderContext(0, 1, "uid"))
    opened = reader.open_split(built.create_enumerator().discover()[0], None)
    batch = None
    while batch is None:
        batch = opened.read(ReadBounds())
    assert isinstance(batch, ColumnBatch)
    assert batch.column("id").to_pylist()[:3] == [0, 1, 2]
    assert batch.timestamps is not None
    assert set(batch.timestamps.tolist()) == {5_000}
    reader.close()


BAD = [b'{"id": 1}', b"no json", b'{"id": 2}', None, b'{"id": "three"}', b'{"id":\n 4}']


def test_a_message_that_cannot_be_read_fails_with_its_coordinates(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, BAD)
    with pytest.raises(RecordFormatError, match=rf"(?s){name}-0 at offset 1: .*no json"):
        read_all(source(kafka.bootstrap_servers, name, {"id": int}).set_bounded(END).build())


def test_bad_messages_go_to_the_side_output_with_their_coordinates(kafka: KafkaServer, tmp_path: Path) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, BAD)
    built = source(kafka.bootstrap_servers, name, {"id": int}).set_bounded(END).set_on_error("side-output").build()
    env = environment(tmp_path, **{"restart-strategy.type": "none", "penstock.runner": "in-process"})
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in")
    bad = stream.get_side_output(OutputTag("malformed-records"))
    good: DataStream[tuple[Any, ...]] = stream.map(lambda record: ("good", record["id"]))
    both = good.union(bad.map(lambda b: ("bad", b.topic, b.offset, b.value)))
    found = sorted(both.execute_and_collect())
    assert found == [
        ("bad", name, 1, b"no json"),
        ("bad", name, 3, None),
        ("bad", name, 4, b'{"id": "three"}'),
        ("good", 1),
        ("good", 2),
        ("good", 4),
    ]


def test_offsets_are_committed_to_the_group_when_checkpoints_complete(kafka: KafkaServer, tmp_path: Path) -> None:
    name, group, writes = topic(kafka, 2), new_name("group"), topic(kafka)
    fill(kafka.bootstrap_servers, name, records(100), 2)
    env = environment(tmp_path)
    stream = env.from_source(
        source(kafka.bootstrap_servers, name).set_group_id(group).build(), WatermarkStrategy.no_watermarks(), "in"
    )
    stream.sink_to(sink(kafka.bootstrap_servers, writes).build())
    master = started(env)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})

    def committed() -> list[int]:
        return [p.offset for p in consumer.committed([TopicPartition(name, n) for n in range(2)], timeout=10)]

    until(lambda: committed() == [50, 50], master)
    consumer.close()
    master.request(Operation("cancel"))
    master.wait(30)


def test_new_partitions_are_found_and_read_from_their_beginning(kafka: KafkaServer, tmp_path: Path) -> None:
    name, writes = topic(kafka, 1), topic(kafka)
    builder = source(kafka.bootstrap_servers, name).set_starting_offsets(KafkaOffsetsInitializer.latest())
    env = environment(tmp_path)
    stream = env.from_source(
        builder.set_property("partition.discovery.interval.ms", 200).build(), WatermarkStrategy.no_watermarks(), "in"
    )
    stream.sink_to(sink(kafka.bootstrap_servers, writes).build())
    master = started(env)
    until(lambda: master.history.status.value == "RUNNING", master)
    time.sleep(0.5)
    for future in kafka.admin().create_partitions([NewPartitions(name, 3)]).values():
        future.result(20)
    fill(kafka.bootstrap_servers, name, records(30), 3)
    until(lambda: len(read(kafka.bootstrap_servers, writes)) >= 30, master)
    assert sorted(value["id"] for value in values_of(read(kafka.bootstrap_servers, writes))) == list(range(30))
    master.request(Operation("cancel"))
    master.wait(30)


def test_a_recreated_topic_is_an_error_or_is_read_from_its_beginning(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"old"] * 5)
    first = texts(kafka, name).build().create_enumerator()
    splits = first.discover()
    state = first.snapshot()
    kafka.delete_topic(name)
    gone = texts(kafka, name).build().create_enumerator()
    gone.restore(state)
    for ask in (gone.discover, lambda: gone.outdated(splits)):
        with pytest.raises(SourceError, match=r"(?s)was deleted while the job was reading it"):
            ask()
    eventually(lambda: kafka.create_topic(name) is None)
    fill(kafka.bootstrap_servers, name, [b"new"])
    again = texts(kafka, name).build().create_enumerator()
    again.restore(state)
    for ask in (again.discover, lambda: again.outdated(splits)):
        with pytest.raises(SourceError, match=r"(?s)deleted and created again.*set_recreated_topics"):
            ask()
    for choice in ("restart", "start-anew"):  # the second is the deprecated name of the first
        deprecated = choice == "start-anew"
        with pytest.warns(DeprecationWarning, match='use "restart"') if deprecated else nullcontext():
            built = texts(kafka, name).set_recreated_topics(choice).build()
        enumerator = built.create_enumerator()
        enumerator.restore(state)
        assert enumerator.outdated(splits) == {split.id for split in splits}
        assert read_all(built, enumerator.discover()) == ["new"]


def test_unavailable_brokers_do_not_end_a_running_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.kafka.offsets.CONNECT_S", 1.0)
    with KafkaServer(tmp_path) as kafka:
        name = topic(kafka)
        built = source(kafka.bootstrap_servers, name).build()
        enumerator = built.create_enumerator()
        assert len(enumerator.discover()) == 1
        state = enumerator.snapshot()
        kafka.kill()
        assert enumerator.discover() == []
        later = built.create_enumerator()
        later.restore(state)
        with pytest.raises(SourceError, match=r"bootstrap.servers"):
            later.discover()
        kafka.restart()
        kafka.admin().create_partitions([NewPartitions(name, 3)])[name].result(20)
        eventually(lambda: len(enumerator.find()) == 3)
        found = []
        eventually(lambda: found.extend(enumerator.discover()) or len(found) >= 2)
        assert sorted(split.properties["partition"] for split in found) == [1, 2]


def test_records_that_retention_removed_are_an_error(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"%d" % n for n in range(10)])
    built = texts(kafka, name).build()
    splits = built.create_enumerator().discover()
    for future in kafka.admin().delete_records([TopicPartition(name, 0, 6)]).values():
        future.result(20)
    with pytest.raises(SourceError, match=r"(?s)no longer has a record at offset"):
        read_all(built, splits, {splits[0].id: 2})
    assert read_all(built, splits, {splits[0].id: 6}) == ["6", "7", "8", "9"]


def test_a_source_that_cannot_read_is_refused_before_the_job_starts(kafka: KafkaServer) -> None:
    with pytest.raises(SourceError, match=r"(?s)topic 'absent-\w+' does not exist.*create it"):
        texts(kafka, new_name("absent")).build().validate()
    with pytest.raises(SourceError, match=r"(?s)at 127.0.0.1:1: .*bootstrap.servers"):
        texts(kafka, "any").set_bootstrap_servers("127.0.0.1:1").build().validate()
    with pytest.raises(InvalidJob, match=r"(?i)no such property|No such configuration property"):
        texts(kafka, topic(kafka)).set_property("no.such.thing", "1").build().validate()
    with pytest.raises(InvalidJob, match=r"(?s)sasl.mechanism"):
        texts(kafka, "any").set_property("sasl.jaas.config", "…")
    with pytest.raises(InvalidJob, match=r"exactly one of set_topics"):
        texts(kafka).build()
    with pytest.raises(InvalidJob, match=r"(?s)set_group_id"):
        texts(kafka, "any").set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build()


def test_lag_is_the_number_of_unread_records_of_each_partition(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, records(50))
    built = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(name)
    source_of_name = built.set_value_only_deserializer(JsonLinesFormat()).build()
    reader = source_of_name.create_reader(ReaderContext(0, 1, "uid"))
    opened = reader.open_split(source_of_name.create_enumerator().discover()[0], None)
    eventually(lambda: opened.read(ReadBounds(max_records=20)) is not None)
    assert opened.position == 20
    assert opened.lag() == 30
    reader.close()


def test_files_and_then_a_topic_are_read_each_record_once(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 2, "in"), topic(kafka, 1, "out")
    (tmp_path / "old").mkdir()
    for number in range(3):
        lines = "".join(f'{{"id": {n}, "key": {n % 7}}}\n' for n in range(number * 100, number * 100 + 100))
        (tmp_path / "old" / f"{number}.jsonl").write_text(lines)
    fill(kafka.bootstrap_servers, reads, records(100, 300), 2)
    files = FileSource.for_record_stream_format(JsonLinesFormat(), str(tmp_path / "old")).build()
    both = HybridSource.builder(files).add_source(source(kafka.bootstrap_servers, reads).build()).build()
    env = environment(tmp_path)
    env.set_parallelism(2)
    counting(env, both, sink(kafka.bootstrap_servers, writes).build())
    master = started(env)
    until(lambda: len(read(kafka.bootstrap_servers, writes)) >= 300, master)
    master.request(Operation("rescale", {"parallelism": 1}))
    fill(kafka.bootstrap_servers, reads, records(100, 400), 2)
    until(lambda: len(read(kafka.bootstrap_servers, writes)) >= 500, master)
    master.request(Operation("cancel"))
    master.wait(30)
    assert verdict(kafka.bootstrap_servers, writes, 500) == ""
