"""Offsets without records: the beginning and the end of reading if the given offset, or the last offset, has no record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaTopicPartition,
)
from tests.integration.kafka.support import eventually, fill, new_name, read, source, topic
from tests.integration.kafka.test_source import END, read_all, texts
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
EARLIEST, LATEST, NONE = (
    KafkaOffsetResetStrategy.EARLIEST,
    KafkaOffsetResetStrategy.LATEST,
    KafkaOffsetResetStrategy.NONE,
)


def transactions(kafka: KafkaServer, name: str, *ends: str) -> Producer:
    """Write one record in each transaction, and end it with "commit", "abort" or "open"."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": new_name("t")})
    producer.init_transactions(30)
    for end in ends:
        producer.begin_transaction()
        producer.produce(name, end.encode())
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
    return producer


def without_first(kafka: KafkaServer, name: str, count: int) -> None:
    """Make the broker delete the records before an offset. -1 deletes all records."""
    for future in kafka.admin().delete_records([TopicPartition(name, 0, count)]).values():
        future.result(20)


@contextmanager
def followed(kafka: KafkaServer, name: str, position: int | None = None) -> Iterator[Any]:
    built = source(kafka.bootstrap_servers, name).set_record_timestamps(used=False).build()
    reader = built.create_reader(ReaderContext(0, 1, "uid"))
    yield reader.open_split(built.create_enumerator().discover()[0], position)
    reader.close()


def test_a_position_advances_over_offsets_without_records(
    kafka: KafkaServer,
) -> None:
    name = topic(kafka)
    transactions(kafka, name, "abort", "abort")

    def at_end(opened: Any) -> bool:
        assert opened.read(ReadBounds()) is None or not opened.finished
        return bool(opened.position == 4)

    built = texts(kafka, name).set_property("isolation.level", "read_committed").set_unbounded(END).build()
    splits = built.create_enumerator().discover()
    splits[0].properties["stop"] = None
    reader = built.create_reader(ReaderContext(0, 1, "uid"))
    opened = reader.open_split(splits[0], None)
    eventually(lambda: at_end(opened), 20, "the end of the partition")
    assert opened.lag() == 0
    reader.close()
    without_first(kafka, name, -1)
    with followed(kafka, name, 4) as again:
        for _ in range(50):
            again.read(ReadBounds())
            time.sleep(0.01)
        assert again.position == 4
    with followed(kafka, name, 2) as behind, pytest.raises(SourceError, match="no longer has a record at offset 2"):
        eventually(lambda: behind.read(ReadBounds()) is not None)


@pytest.mark.parametrize(
    ("ends", "committed", "expected"),
    [
        (("commit", "abort"), False, ["commit", "abort"]),
        (("commit", "abort"), True, ["commit"]),
        (("abort", "abort"), True, []),
        (("commit", "open"), True, ["commit"]),
    ],
)
def test_a_bounded_source_ends_at_the_end_of_transactions(
    kafka: KafkaServer, ends: tuple[str, ...], committed: bool, expected: list[str]
) -> None:
    name = topic(kafka)
    producer = transactions(kafka, name, *ends)
    fill(kafka.bootstrap_servers, name, [b"behind"] if ends[-1] == "open" else [])
    level = "read_committed" if committed else "read_uncommitted"
    assert read_all(texts(kafka, name).set_property("isolation.level", level).build()) == expected
    if ends[-1] == "open":
        producer.abort_transaction(30)


def test_partitions_without_records_end_at_once(kafka: KafkaServer) -> None:
    name = topic(kafka, 3)
    assert read_all(texts(kafka, name).build()) == []
    fill(kafka.bootstrap_servers, name, [b"only"], 1)
    assert read_all(texts(kafka, name).build()) == ["only"]


def test_a_compacted_topic_with_gaps_is_read_to_an_end_within_a_gap(kafka: KafkaServer) -> None:
    name = new_name("compacted")
    settings = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.001", "max_compaction_lag_ms": "100"}
    kafka.create_topic(name, 1, cleanup_policy="compact", **settings)
    fill(kafka.bootstrap_servers, name, [b"first"], key=b"a")
    time.sleep(
        0.15
    )  # let segments end between records: the active segment is never deleted, so it must have no old records
    for value in range(10):
        fill(kafka.bootstrap_servers, name, [b"%d" % value], key=b"b")
    time.sleep(0.15)

    def offsets() -> list[int]:
        fill(kafka.bootstrap_servers, name, [b"last"], key=b"c")
        return [message.offset() for message in read(kafka.bootstrap_servers, name)]

    eventually(lambda: offsets()[:2] == [0, 10], 60, "compaction")
    stop = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(name, 0): 6})
    assert read_all(texts(kafka, name).set_bounded(stop).build()) == ["first"]
    values = read_all(texts(kafka, name).build())
    assert (values[:2], values[-1]) == (["first", "9"], "last")


@pytest.mark.parametrize(("strategy", "expected"), [(EARLIEST, ["1", "2"]), (LATEST, []), (NONE, None)])
@pytest.mark.parametrize("offset", [0, 50])
@pytest.mark.parametrize("kind", ["given", "committed"])
def test_offsets_that_a_partition_does_not_have_are_reset(
    kafka: KafkaServer, kind: str, offset: int, strategy: KafkaOffsetResetStrategy, expected: list[str] | None
) -> None:
    name, group = topic(kafka), new_name("group")
    fill(kafka.bootstrap_servers, name, [b"0", b"1", b"2"])
    without_first(kafka, name, 1)
    if kind == "given":
        begin = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(name, 0): offset}, strategy)
    else:
        begin = KafkaOffsetsInitializer.committed_offsets(strategy)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False)
        consumer.close()
    built = texts(kafka, name).set_group_id(group).set_starting_offsets(begin).build()
    if expected is None:
        with pytest.raises(SourceError, match=rf"(?s){name}-0 \({offset}, it has 1 to 3\).*KafkaOffsetResetStrategy"):
            built.validate()
    else:
        assert read_all(built) == expected


def test_the_end_may_be_an_offset_without_a_record_yet(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [b"0", b"1"])
    until = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(name, 0): 3})
    built = texts(kafka, name).set_bounded(until).build()
    splits = built.create_enumerator().discover()
    fill(kafka.bootstrap_servers, name, [b"2", b"3"])
    assert read_all(built, splits) == ["0", "1", "2"]


def test_reading_cannot_begin_at_times_before_1970() -> None:
    for time_ms in (-1, -2):
        with pytest.raises(InvalidJob, match=rf"timestamp {time_ms} is before 1970"):
            KafkaOffsetsInitializer.timestamp(time_ms)


@pytest.mark.parametrize("begin", ["a.b_c-D.", "...", "-", "x" * 240])
def test_topics_of_any_name_are_read(kafka: KafkaServer, begin: str) -> None:
    name = new_name(begin)
    kafka.create_topic(name)
    fill(kafka.bootstrap_servers, name, [b"1"])
    assert read_all(texts(kafka, name).build()) == ["1"]


def test_missing_parts_of_a_message_are_none(kafka: KafkaServer) -> None:
    name = topic(kafka)
    fill(kafka.bootstrap_servers, name, [None, b""])
    fill(kafka.bootstrap_servers, name, [b"v"], key=b"", headers=[("h", None), ("h", b""), ("", b"1")])
    whole = KafkaRecordDeserializationSchema.of(lambda record: (record.key, record.value, record.headers))
    assert read_all(texts(kafka, name).set_deserializer(whole).build()) == [
        (None, None, []),
        (None, b"", []),
        (b"", b"v", [("h", None), ("h", b""), ("", b"1")]),
    ]


def test_values_of_a_megabyte_and_of_ten_bytes_are_read_alike(kafka: KafkaServer) -> None:
    name = new_name("large")
    kafka.create_topic(name, 1, max_message_bytes="5000000")
    values = [b"%010d" % n + b"x" * (1_000_000 if n % 50 == 0 else 0) for n in range(500)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 5_000_000})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(60) == 0
    assert read_all(texts(kafka, name).build()) == [value.decode() for value in values]
