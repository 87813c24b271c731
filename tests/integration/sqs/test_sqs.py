"""Source and sink without a job, on a real ElasticMQ. Errors name the rejected value."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.common.errors import InvalidJob, PlatformError, RecordFormatError, SinkError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.datastream.connectors.sqs import SqsRejectedMessage, SqsSink, SqsSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tests.integration.sqs.queues import Queue, new_queue
from tools.servers.sqs import KEYS, SqsServer

pytestmark = pytest.mark.sqs
CONTEXT = WriterContext(0, 1, 0, "out", "job")


class Reading:
    """A reader without a job."""

    def __init__(self, source: SqsSource, position: Any = None) -> None:
        self.reader = source.create_reader(ReaderContext(0, 1, "in"))
        self.split: Any = self.reader.open_split(Split("receiver-0"), position)

    def values(self, count: int, patience: float = 20.0) -> list[Any]:
        found: list[Any] = []
        until = time.monotonic() + patience
        while len(found) < count and time.monotonic() < until:
            batch = self.split.read(ReadBounds())
            if batch is None:
                time.sleep(0.02)
            else:
                found += batch.rows().values
        return found

    def checkpoint(self, number: int) -> Any:
        self.reader.snapshot(number)
        return self.split.position

    def close(self) -> None:
        self.split.close()


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(source: SqsSource, position: Any = None) -> Reading:
        made.append(Reading(source, position))
        return made[-1]

    yield make
    for found in made:
        found.close()


def exactly(queue: Queue, **options: Any) -> SqsSource:
    return SqsSource(queue.url, SimpleStringSchema(), exactly_once=True, **options)


def until(condition: Callable[[], bool], patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


# --- source ----------------------------------------------------------------------------------------------------------


def test_messages_are_deleted_with_the_checkpoint_that_has_them(sqs: SqsServer, reading: Any) -> None:
    queue = new_queue(sqs)
    queue.fill(*range(35))
    reader = reading(exactly(queue))
    assert sorted(map(int, reader.values(35))) == list(range(35))
    reader.checkpoint(1)
    time.sleep(0.5)
    assert queue.left == (0, 35)
    reader.reader.notify_checkpoint_complete(1)
    until(lambda: queue.left == (0, 0))


def test_messages_without_a_complete_checkpoint_are_redelivered_and_others_are_not(
    sqs: SqsServer, reading: Any
) -> None:
    queue = new_queue(sqs)
    queue.fill(*range(20))
    first = reading(exactly(queue))
    assert len(first.values(20)) == 20
    position = first.checkpoint(1)  # complete, but the job is killed before it can report it
    queue.fill(*range(20, 30))
    assert len(first.values(10)) == 10
    first.close()
    second = reading(exactly(queue), position)
    assert sorted(map(int, second.values(10))) == list(range(20, 30))
    assert second.values(1, patience=2) == []
    second.checkpoint(2)
    second.reader.notify_checkpoint_complete(2)
    until(lambda: queue.left == (0, 0))


def test_a_message_remains_hidden_while_the_job_has_it(sqs: SqsServer, reading: Any) -> None:
    queue = new_queue(sqs, VisibilityTimeout="1")
    queue.fill(*range(12))
    reader = reading(SqsSource(queue.url, SimpleStringSchema(), visibility_timeout=2_000))
    assert len(reader.values(12)) == 12
    assert reader.values(1, patience=5) == []
    reader.checkpoint(1)
    reader.reader.notify_checkpoint_complete(1)
    until(lambda: queue.left == (0, 0))


def test_at_most_the_configured_number_of_messages_is_in_flight(sqs: SqsServer, reading: Any) -> None:
    queue = new_queue(sqs)
    queue.fill(*range(300))
    reader = reading(exactly(queue, most_under_way=100))
    assert len(reader.values(101, patience=3)) == 100
    reader.checkpoint(1)
    reader.reader.notify_checkpoint_complete(1)
    assert len(reader.values(100)) == 100


def test_a_fifo_queue_keeps_the_order_of_a_group(sqs: SqsServer, reading: Any) -> None:
    queue = new_queue(sqs, ".fifo", FifoQueue="true")
    sink = SqsSink(queue.url, SimpleStringSchema(), group=lambda t: t[0], deduplication=lambda t: t)
    texts = [f"{group}{number:02}" for number in range(20) for group in "ab"]
    written(sink, *texts, *texts)  # the queue deduplicates the second copies
    reader = reading(exactly(queue))
    found: list[str] = []
    for checkpoint in range(1, 30):  # a group's next messages wait until its received ones were deleted
        found += reader.values(1, patience=3)
        reader.checkpoint(checkpoint)
        reader.reader.notify_checkpoint_complete(checkpoint)
        if len(found) == 40:
            break
    for group in "ab":
        assert [text for text in found if text[0] == group] == [text for text in texts if text[0] == group]


def test_bodies_that_cannot_be_read_have_a_side_output(sqs: SqsServer, reading: Any) -> None:
    class Order(NamedTuple):
        id: int

    queue = new_queue(sqs)
    queue.fill('{"id": 1}', "{id", '{"id": 2}')
    fails = reading(SqsSource(queue.url, JsonLinesFormat(Order), visibility_timeout=1_000))
    with pytest.raises(RecordFormatError, match=r"malformed message .* of queue"):
        fails.values(3)
    fails.close()
    reader = reading(SqsSource(queue.url, JsonLinesFormat(Order), on_error="side-output"))
    assert sorted(reader.values(2)) == [Order(1), Order(2)]
    until(lambda: bool(reader.values(0) or reader.split._rejected))
    (rejected,) = reader.split.take_rejected()
    assert isinstance(rejected, SqsRejectedMessage)
    assert rejected.body == b"{id"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: f"{url}-other", "it does not exist"),
        (lambda url: url.replace("http", "ftp"), "is not the URL of an SQS queue"),
        (lambda url: "http://127.0.0.1:9/000000000000/q", "EndpointConnectionError"),
        (lambda url: "", "is not the URL of an SQS queue"),
    ],
)
def test_a_wrong_setting_is_an_error_at_the_start(sqs: SqsServer, change: Callable[[str], str], message: str) -> None:
    url = change(new_queue(sqs).url)
    for make in (
        lambda: SqsSource(url, SimpleStringSchema(), patience=200),
        lambda: SqsSink(url, SimpleStringSchema(), patience=200),
    ):
        with pytest.raises((PlatformError, InvalidJob), match=message):
            make().validate()


def test_a_job_without_credentials_does_not_start(
    sqs: SqsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = new_queue(sqs)
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SourceError, match="no AWS credentials"):
        SqsSource(queue.url, SimpleStringSchema()).validate()


# --- sink ------------------------------------------------------------------------------------------------------------


def written(sink: SqsSink, *values: Any) -> None:
    writer = sink.create_writer(CONTEXT, [])
    try:
        writer.write(list(values), None, 0)
        assert writer.prepare_commit(1) == []
    finally:
        writer.close()


def test_records_are_messages_when_the_checkpoint_is_complete(sqs: SqsServer) -> None:
    queue = new_queue(sqs)
    written(SqsSink(queue.url, JsonLinesEncoder()), *[{"id": n, "x": np.float64(n)} for n in range(57)])
    bodies = [json.loads(message["Body"]) for message in queue.read()]
    assert Counter(body["id"] for body in bodies) == Counter(range(57))


def test_large_messages_share_no_request(sqs: SqsServer) -> None:
    queue = new_queue(sqs)
    texts = [letter * size for letter, size in zip("abcdef", (262_144, 200_000, 100_000, 1, 262_143, 7), strict=True)]
    written(SqsSink(queue.url, SimpleStringSchema()), *texts)
    assert sorted(message["Body"] for message in queue.read()) == texts


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x" * 262_145, "262,145 bytes"),
        ("a\x01b", r"has '\\x01'"),
        ("", "is empty"),
        ("\ufffe", r"has '\\ufffe'"),
    ],
)
def test_the_error_for_a_record_without_a_message_shows_the_record(sqs: SqsServer, value: str, message: str) -> None:
    queue = new_queue(sqs)
    with pytest.raises(RecordFormatError, match=message):
        written(SqsSink(queue.url, SimpleStringSchema()), "good", value)


def test_groups_belong_to_fifo_queues(sqs: SqsServer) -> None:
    plain, fifo = new_queue(sqs), new_queue(sqs, ".fifo", FifoQueue="true")
    wrong: list[tuple[str, dict[str, Any]]] = [
        (plain.url, {"group": str}),
        (fifo.url, {}),
        (plain.url, {"deduplication": str}),
    ]
    for url, options in wrong:
        with pytest.raises(InvalidJob, match="a FIFO queue needs a group"):
            SqsSink(url, SimpleStringSchema(), **options)
    with pytest.raises(RecordFormatError, match="MessageGroupId is 'with space'"):
        written(SqsSink(fifo.url, SimpleStringSchema(), group=lambda _: "with space"), "x")
    with pytest.raises(SinkError, match=r"(?i)dedup"):
        written(SqsSink(fifo.url, SimpleStringSchema(), group=lambda _: "g"), "x")
