"""Reading of streams: the start position, and the errors for lost entries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.datastream.connectors.redis import RedisEntry, RedisRejectedEntry, RedisStreamSink, RedisStreamSource
from penstock.datastream.formats.json import JsonLinesFormat
from tests.in_process import environment, run
from tests.integration.redis.streams import Stream, numbers, opened, read
from tools.servers.redis import RedisServer

pytestmark = pytest.mark.redis


@pytest.fixture
def stream(redis_server: RedisServer) -> Stream:
    return Stream(redis_server)


def test_entries_come_with_id_fields_and_the_time_of_their_id(stream: Stream) -> None:
    with stream.client as client:
        client.xadd(stream.name, {"a": "1", "b": "ü"}, id="1700000000123-4")
    reader = opened(stream.source(bounded=True))
    batch = None
    while batch is None:
        batch = reader.read(ReadBounds())
    assert batch.rows().values == [RedisEntry(stream.name, "1700000000123-4", {"a": "1", "b": "ü"})]
    assert batch.rows().timestamps == [1700000000123]


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_a_reader_opened_at_any_position_returns_exactly_the_later_records(stream: Stream, at_once: int) -> None:
    stream.add(range(60))
    reader = opened(stream.source())
    for count in range(0, 60, at_once):
        again = opened(stream.source(), reader.position)
        assert numbers(read(again, 60 - count)) == list(range(count, 60))
        again.close()
        read(reader, min(at_once, 60 - count))


def test_more_entries_than_the_buffer_holds_are_read_in_order(stream: Stream) -> None:
    stream.add(range(30_000))
    source = stream.source(bounded=True)
    reader = opened(source)
    stream.add([30_000])
    assert numbers(read(reader, 100_000)) == list(range(30_000))
    assert reader.finished


def test_later_entries_are_read_soon_even_after_a_long_pause(stream: Stream) -> None:
    stream.add([1])
    reader = opened(stream.source(start="latest"))
    time.sleep(1.5)
    stream.add([2])
    began = time.monotonic()
    assert numbers(read(reader, 1)) == [2]
    assert time.monotonic() - began < 0.5
    assert reader.lag() == 0


def test_an_idle_stream_costs_the_server_few_requests(stream: Stream) -> None:
    stream.add([1])
    reader = opened(stream.source())
    read(reader, 1)
    time.sleep(1.5)
    with stream.client as client:
        before = client.info("stats")["total_commands_processed"]
        time.sleep(3)
        assert client.info("stats")["total_commands_processed"] - before < 60
    reader.close()


def test_reading_starts_after_an_id(stream: Stream) -> None:
    stream.add(range(5))
    second = stream.entries()[1][0]
    assert numbers(read(opened(stream.source(start=second)), 3)) == [2, 3, 4]


def test_the_source_waits_for_a_missing_stream_if_configured(stream: Stream) -> None:
    with pytest.raises(SourceError, match="does not exist") as caught:
        stream.source().validate()
    assert "may_be_missing" in str(caught.value.remedy)
    source = stream.source(may_be_missing=True)
    source.validate()
    reader = opened(source)
    stream.add([1])
    assert numbers(read(reader, 1)) == [1]


def test_entries_that_were_trimmed_after_they_were_read_are_not_an_error(stream: Stream) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 10)
    position = reader.position
    stream.add([10])
    stream.trim(1)
    assert numbers(read(opened(stream.source(), position), 1)) == [10]


def test_entries_that_were_trimmed_before_they_were_read_are_an_error(stream: Stream) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 4, at_once=4)
    position = reader.position
    reader.close()
    stream.trim(3)
    with pytest.raises(SourceError, match="3 entries were removed before they were read") as caught:
        read(opened(stream.source(), position), 1)
    assert "on_lost='continue'" in str(caught.value.remedy)
    assert numbers(read(opened(stream.source(on_lost="continue"), position), 3)) == [7, 8, 9]


def test_a_stream_that_is_trimmed_to_nothing_before_it_was_read_is_an_error(stream: Stream) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 4, at_once=4)
    stream.trim(0)
    with pytest.raises(SourceError, match="6 entries were removed"):
        read(opened(stream.source(), reader.position), 1)


@pytest.mark.parametrize("again", [0, 3])
def test_a_deleted_or_recreated_stream_is_an_error(stream: Stream, again: int) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 10)
    stream.delete()
    stream.add(range(again))
    problem = "created again" if again else "was removed"
    with pytest.raises(SourceError, match=problem):
        read(opened(stream.source(may_be_missing=True), reader.position), 1)
    continued = opened(stream.source(on_lost="continue", may_be_missing=True), reader.position)
    if not again:
        stream.add(range(3))
    assert numbers(read(continued, 3)) == [0, 1, 2]


def test_a_recreated_stream_with_more_entries_than_were_read_is_an_error(stream: Stream) -> None:
    """The new ids are greater than the position, so only the number of entries shows the difference."""
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 4, at_once=4)
    stream.delete()
    stream.add(range(20))
    with pytest.raises(SourceError, match="created again; the job had read it up to"):
        read(opened(stream.source(), reader.position), 1)
    continued = opened(stream.source(on_lost="continue"), reader.position)
    assert numbers(read(continued, 20)) == list(range(20))


@pytest.mark.parametrize("count", [3, 12])
def test_a_recreated_stream_with_lower_ids_is_read_from_its_beginning(stream: Stream, count: int) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 10)
    stream.delete()
    with stream.client as client:
        for number in range(count):
            client.xadd(stream.name, {"id": number}, id=f"{number + 1}-0")
    with pytest.raises(SourceError, match="created again, or the server has lost"):
        read(opened(stream.source(), reader.position), 1)
    continued = opened(stream.source(on_lost="continue"), reader.position)
    assert numbers(read(continued, count)) == list(range(count))


def test_entries_are_not_read_again_from_a_server_that_has_lost_entries(tmp_path: Path) -> None:
    with RedisServer(tmp_path, appendonly="no", save="") as server:
        stream = Stream(server)
        stream.add(range(10))
        reader = opened(stream.source())
        read(reader, 10)
        with stream.client as client:
            client.save()
        stream.add(range(10, 15))
        read(reader, 5)
        reader.close()
        server.kill()
        server.start()
        assert stream.ids() == list(range(10))
        continued = opened(stream.source(on_lost="continue"), reader.position)
        stream.add([20])
        assert numbers(read(continued, 1)) == [20]
        continued.close()


def test_a_deleted_entry_does_not_count_as_trimmed_unread(stream: Stream) -> None:
    stream.add(range(10))
    reader = opened(stream.source())
    read(reader, 4, at_once=4)
    ids = [id for id, _ in stream.entries()]
    with stream.client as client:
        client.xdel(stream.name, ids[6])
    stream.trim(5)  # remove the entries that were read
    again = opened(stream.source(), reader.position)
    assert numbers(read(again, 5)) == [4, 5, 7, 8, 9]
    assert again.lag() == 0
    again.close()
    with stream.client as client:
        client.xdel(stream.name, ids[7])
    stream.trim(2)
    with pytest.raises(
        SourceError, match=r"4 entries were removed before they were read \(an unknown number of them by XDEL"
    ):
        read(opened(stream.source(), reader.position), 1)


def test_a_bounded_stream_that_is_deleted_before_it_was_read_is_an_error(stream: Stream) -> None:
    stream.add(range(10))
    source = stream.source(bounded=True)
    (split,) = source.create_enumerator().discover()
    stream.delete()
    with pytest.raises(SourceError, match="was removed"):
        read(source.create_reader(ReaderContext(0, 1, "in")).open_split(split, None), 1)


def test_values_are_decoded_into_columns_and_malformed_ones_are_errors_or_side_output(stream: Stream) -> None:
    with stream.client as client:
        client.xadd(stream.name, {"value": '{"id": 1}'})
        wrong = client.xadd(stream.name, {"value": "{"})
        none = client.xadd(stream.name, {"other": "x"})
        client.xadd(stream.name, {"value": '{"id": 2}'})
    schema = JsonLinesFormat({"id": int})
    with pytest.raises(RecordFormatError, match=f"malformed entry {wrong} of stream"):
        read(opened(stream.source(schema)), 4)
    reader = opened(stream.source(schema, on_error="side-output"))
    assert [value["id"] for value in read(reader, 2)] == [1, 2]
    rejected: list[Any] = reader.take_rejected()
    assert [(type(one), one.id) for one in rejected] == [(RedisRejectedEntry, wrong), (RedisRejectedEntry, none)]
    assert "no field 'value', but only 'other'" in rejected[1].reason


def test_several_streams_are_read_by_several_subtasks(redis_server: RedisServer, tmp_path: Path) -> None:
    streams = [Stream(redis_server) for _ in range(5)]
    for number, stream in enumerate(streams):
        stream.add(range(number * 100, number * 100 + 100))
    target = Stream(redis_server)
    env = environment(tmp_path)
    env.set_parallelism(3)
    source = RedisStreamSource(redis_server.url, [stream.name for stream in streams], bounded=True)
    read = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    read.sink_to(RedisStreamSink(redis_server.url, target.name, lambda entry: entry.fields))
    run(env)
    assert target.ids() == list(range(500))


def test_wrong_options_are_errors(redis_server: RedisServer) -> None:
    url = redis_server.url
    for given in ({"start": "yesterday"}, {"on_lost": "?"}, {"on_error": "?"}):
        with pytest.raises(InvalidJob):
            RedisStreamSource(url, "s", **given)  # type: ignore[arg-type]
    for streams in ([], "", ["a", "a"]):
        with pytest.raises(InvalidJob):
            RedisStreamSource(url, streams)
    with pytest.raises(InvalidJob):
        RedisStreamSource(url, "s", 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="redis://user@host"):
        RedisStreamSource("http://x", "s", SimpleStringSchema())
