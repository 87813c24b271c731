"""Source and sink without a job, on a kinesis-mock. Its shards are split and merged."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.connectors.kinesis.aggregated import hash_of
from penstock.datastream.connectors.kinesis import (
    FlinkKinesisConsumer,
    KinesisRejectedRecord,
    KinesisSource,
    KinesisStreamsSink,
)
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tests.integration.kinesis.streams import new_stream, range_of
from tests.unit.connectors.kinesis.test_aggregated import aggregated
from tools.servers.kinesis import KinesisServer

pytestmark = pytest.mark.kinesis


def in_order(found: list[Any], numbers: list[int]) -> None:
    """Check that each number was found once, and each key's numbers in the order in which they were put."""
    assert sorted(map(int, found)) == sorted(numbers)
    for digit in "0123456789":
        of_key = [int(value) for value in found if str(value)[-1] == digit]
        assert of_key == sorted(of_key)


# --- source ----------------------------------------------------------------------------------------------------------


def test_shards_that_were_split_and_merged_are_read_before_those_that_follow_them(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis, 2)
    numbers = list(range(120))
    for begin in range(0, 120, 20):
        stream.put(*numbers[begin : begin + 20])
        if begin in (20, 60):
            stream.split()
        elif begin in (40, 80):
            stream.merge()
    in_order(stream.values(120), numbers)


def test_a_reader_continues_after_its_position(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis)
    stream.put(*range(10))
    source = stream.source()
    (split,) = source.create_enumerator().discover()
    reader = source.create_reader(ReaderContext(0, 1, "in"))
    first = reader.open_split(split, None)
    found: list[Any] = []
    while len(found) < 4:
        batch = first.read(ReadBounds(max_records=4 - len(found)))
        found += [] if batch is None else batch.rows().values
    second = reader.open_split(split, first.position)
    first.close()
    rest: list[Any] = []
    until = time.monotonic() + 10
    while len(rest) < 6 and time.monotonic() < until:
        batch = second.read(ReadBounds())
        rest += [] if batch is None else batch.rows().values
    second.close()
    assert [*found, *rest] == [str(number) for number in range(10)]


def test_latest_is_the_time_of_the_first_discovery_even_after_a_restart(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis)
    stream.put(1, 2)
    time.sleep(1.1)
    source = stream.source(start="latest")
    enumerator = source.create_enumerator()
    (split,) = enumerator.discover()
    time.sleep(1.1)
    stream.put(3)
    again = source.create_enumerator()
    again.restore(json.loads(json.dumps(enumerator.snapshot())))
    assert again.discover() == []
    reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(
        Split(split.id, json.loads(json.dumps(split.properties))), None
    )
    found: list[Any] = []
    until = time.monotonic() + 10
    while not found and time.monotonic() < until:
        batch = reader.read(ReadBounds())
        found += [] if batch is None else batch.rows().values
    reader.close()
    assert found == ["3"]


def test_a_time_to_begin_at(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis)
    stream.put(1, 2)
    time.sleep(1.2)
    between = datetime.now(UTC)
    time.sleep(1.2)
    stream.put(3)
    assert stream.values(1, stream.source(start=between)) == ["3"]
    properties = {"aws.endpoint": kinesis.url, "flink.stream.initpos": "AT_TIMESTAMP"}
    for text in (between.isoformat(), str(between.timestamp())):
        consumer = FlinkKinesisConsumer(
            stream.name, SimpleStringSchema(), {**properties, "flink.stream.initpos.timestamp": text}
        )
        assert stream.values(1, consumer) == ["3"]


def test_records_that_cannot_be_read_have_a_side_output(kinesis: KinesisServer) -> None:
    class Order(NamedTuple):
        id: int

    stream = new_stream(kinesis)
    stream.put('{"id": 1}', "{id", '{"id": 2}')
    with pytest.raises(RecordFormatError, match=r"malformed record \d+ of shardId-000000000000 of stream"):
        stream.values(3, stream.source(schema=JsonLinesFormat(Order)))
    source = stream.source(schema=JsonLinesFormat(Order), on_error="side-output")
    (split,) = source.create_enumerator().discover()
    reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(split, None)
    found: list[Any] = []
    rejected: list[Any] = []
    until = time.monotonic() + 10
    while len(found) + len(rejected) < 3 and time.monotonic() < until:
        batch = reader.read(ReadBounds())
        found += [] if batch is None else batch.rows().values
        rejected += reader.take_rejected()
    reader.close()
    assert found == [Order(1), Order(2)]
    assert isinstance(rejected[0], KinesisRejectedRecord)
    assert rejected[0].data == b"{id"


def test_aggregated_records_are_read_after_a_reshard(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis, 2)
    numbers = list(range(240))
    for begin in range(0, 240, 40):
        stream.put_together(*numbers[begin : begin + 30])
        stream.put(*numbers[begin + 30 : begin + 40])
        if begin in (40, 120):
            stream.split()
        elif begin in (80, 160):
            stream.merge()
    in_order(stream.values(240), numbers)


def test_an_aggregate_of_an_outdated_shard_map_is_read_from_its_own_shard(kinesis: KinesisServer) -> None:
    """The producer does not know of a split. Its aggregate lands in one of the new shards, and it sends the other shard's records
    again."""
    stream = new_stream(kinesis)
    stream.split()
    parts = [(str(number)[-1], None, str(number).encode()) for number in range(10)]
    keys = {"ExplicitHashKey": str(hash_of("0")), "PartitionKey": "a"}
    stream.client.put_record(StreamName=stream.name, Data=aggregated(*parts), **keys)
    (mine,) = [
        range_of(shard) for shard in stream.open_shards if range_of(shard)[0] <= hash_of("0") <= range_of(shard)[1]
    ]
    others = [number for number in range(10) if not mine[0] <= hash_of(str(number)) <= mine[1]]
    assert 0 < len(others) < 10
    stream.put_together(*others)
    in_order(stream.values(10), list(range(10)))


def test_a_missing_last_record_is_an_error(kinesis: KinesisServer) -> None:
    """Use the first sequence number of the shard, which no record has, because the mock drops no records by itself.

    A number of another stream is not enough: the mock gives records of the same second in two streams equal numbers.
    """
    stream = new_stream(kinesis)
    gone = stream.open_shards[0]["SequenceNumberRange"]["StartingSequenceNumber"]
    stream.put(1, 2)
    for on_lost in ("fail", "continue"):
        source = stream.source(on_lost=on_lost)
        (split,) = source.create_enumerator().discover()
        position = {"after": gone, "sub": -1, "read_to": int(time.time() * 1000) - 25 * 3_600_000}
        reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(split, position)
        try:
            if on_lost == "fail":
                with pytest.raises(SourceError, match="keeps records for 24 h, so records may be lost"):
                    _read(reader, 2)
            else:
                assert _read(reader, 2) == ["1", "2"]
        finally:
            reader.close()


def _read(reader: Any, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        batch = reader.read(ReadBounds())
        found += [] if batch is None else batch.rows().values
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "nobody-made-it"}, "it does not exist"),
        ({"endpoint": "http://127.0.0.1:9"}, "EndpointConnectionError"),
        ({"name": ""}, "a Kinesis stream named ''"),
    ],
)
def test_a_wrong_setting_is_an_error_at_the_start(kinesis: KinesisServer, change: dict[str, str], message: str) -> None:
    stream = new_stream(kinesis)
    name, endpoint = change.get("name", stream.name), change.get("endpoint", kinesis.url)
    with pytest.raises((PlatformError, InvalidJob), match=message):
        KinesisSource(name, SimpleStringSchema(), endpoint=endpoint, patience=200).validate()


def test_invalid_settings_are_refused() -> None:
    for wrong in ("never", 0, -5, True, int(time.time() * 2000)):
        with pytest.raises(InvalidJob, match="start="):
            KinesisSource("a", SimpleStringSchema(), start=wrong)
    with pytest.raises(InvalidJob, match=r"does not support the properties aws\.credentials"):
        FlinkKinesisConsumer("a", SimpleStringSchema(), {"aws.credentials.provider": "BASIC"})
    with pytest.raises(InvalidJob, match="needs a partition_key_generator"):
        KinesisStreamsSink.builder().set_stream_name("a").set_serialization_schema(SimpleStringSchema()).build()


# --- sink ------------------------------------------------------------------------------------------------------------


def written(sink: KinesisStreamsSink, *values: Any) -> None:
    writer = sink.create_writer(WriterContext(0, 1, 0, "out", "job"), [])
    try:
        writer.write(list(values), None, 0)
        assert writer.prepare_commit(1) == []
    finally:
        writer.close()


def test_records_are_written_by_the_checkpoint(kinesis: KinesisServer) -> None:
    stream = new_stream(kinesis, 3)
    sink = stream.sink(JsonLinesEncoder(), lambda record: str(record["id"]))
    sink.validate()
    written(sink, *[{"id": number} for number in range(1_234)])
    found = stream.values(1_234, stream.source(schema=JsonLinesFormat({"id": int})))
    assert sorted(row["id"] for row in found) == list(range(1_234))


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ("x" * (1 << 20), "k", "bytes with its key"),
        ("x", "", "partition key is ''"),
        ("x", "k" * 257, "partition key is"),
    ],
)
def test_the_error_for_a_record_that_no_stream_accepts_shows_the_record(
    kinesis: KinesisServer, value: str, key: str, message: str
) -> None:
    with pytest.raises(RecordFormatError, match=message):
        written(new_stream(kinesis).sink(key=lambda _: key), value)
