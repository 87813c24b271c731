"""SQS and Kinesis: an ElasticMQ and a kinesis-mock; botocore without Penstock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import FIELDS, decode, encode, expect, messages, parts, rows
from penstock.datastream.connectors.kinesis import KinesisSource, KinesisStreamsSink
from penstock.datastream.connectors.sqs import SqsSink, SqsSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tools.servers.kinesis import KEYS as KINESIS_KEYS
from tools.servers.kinesis import REGION, KinesisServer
from tools.servers.sqs import KEYS as SQS_KEYS
from tools.servers.sqs import SqsServer

PER_REQUEST = 500
"""Records per request to Kinesis, as in Penstock. SQS takes ten messages."""
_AT_A_TIME = 8


@contextmanager
def sqs(folder: Path) -> Iterator[list[Case]]:
    with SqsServer(folder) as server, patch.dict(os.environ, SQS_KEYS):
        queues = _Queues(server)
        receive = "botocore: receive_message and delete_message_batch by ten"
        yield [
            Case(
                "sqs.source-exactly-once",
                partial(_receive, queues, True),
                partial(_bare_receive, queues),
                receive,
                0.003,
            ),
            Case(
                "sqs.source-at-least-once",
                partial(_receive, queues, False),
                partial(_bare_receive, queues),
                receive,
                0.003,
            ),
            Case(
                "sqs.sink", partial(_send, queues), partial(_bare_send, queues), "botocore: send_message_batch", 0.003
            ),
        ]


class _Queues:
    def __init__(self, server: SqsServer) -> None:
        self.client = server.client()
        self.new_client = server.client
        self._server = server
        self._numbers = itertools.count()

    def new(self, count: int = 0) -> str:
        """Return the URL of a new queue with this many readings."""
        url = self._server.create(f"readings-{next(self._numbers)}")
        texts = [message.decode() for message in messages(count)] if count else []
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            list(threads.map(partial(self.send, url), parts(texts, 10)))
        return url

    def send(self, url: str, texts: list[str]) -> None:
        entries = [{"Id": str(number), "MessageBody": text} for number, text in enumerate(texts)]
        expect(self.client.send_message_batch(QueueUrl=url, Entries=entries).get("Failed", []), [], "refused")

    def check(self, url: str, count: int) -> None:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        expect(sum(map(int, found.values())), count, "messages in the queue")
        self.client.delete_queue(QueueUrl=url)


def _receive(queues: _Queues, exactly_once: bool, count: int) -> Cost:
    url = queues.new(count)
    cost = job.read(SqsSource(url, JsonLinesFormat(FIELDS), exactly_once=exactly_once), count)
    queues.check(url, 0)
    return cost


def _bare_receive(queues: _Queues, count: int) -> Cost:
    url = queues.new(count)
    cost = consumed(count, _received(queues, url))
    queues.check(url, 0)
    return cost


def _received(queues: _Queues, url: str) -> Iterator[list[Any]]:
    client = queues.new_client()  # a separate client, like that of a source's subtask
    while found := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(found)]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
        yield [decode(message["Body"]) for message in found]


def _send(queues: _Queues, count: int) -> Cost:
    url = queues.new()
    cost = job.write(SqsSink(url, JsonLinesEncoder()), count)
    queues.check(url, count)
    return cost


def _bare_send(queues: _Queues, count: int) -> Cost:
    url = queues.new()
    cost = timed(count, partial(_sent, queues, url, count))
    queues.check(url, count)
    return cost


def _sent(queues: _Queues, url: str, count: int) -> None:
    for part in parts(rows(count), 10):
        queues.send(url, [encode(row).decode() for row in part])


@contextmanager
def kinesis(folder: Path) -> Iterator[list[Case]]:
    with KinesisServer(folder) as server, patch.dict(os.environ, KINESIS_KEYS):
        streams = _Streams(server)
        yield [
            Case(
                "kinesis.source", partial(_read, streams), partial(_bare_read, streams), "botocore: get_records", 0.005
            ),
            Case(
                "kinesis.sink",
                partial(_put, streams),
                partial(_bare_put, streams),
                "botocore: put_records by 500",
                0.005,
            ),
        ]


class _Streams:
    """Streams with one shard."""

    def __init__(self, server: KinesisServer) -> None:
        self.client = server.client()
        self.server = server
        self._numbers = itertools.count()
        self._filled: dict[int, str] = {}

    def new(self) -> str:
        return self.server.create(f"readings-{next(self._numbers)}")

    def filled(self, count: int) -> str:
        """Return the name of a stream with this many readings."""
        if count not in self._filled:
            self._filled[count] = self.new()
            self.put(self._filled[count], count)
        return self._filled[count]

    def put(self, name: str, count: int) -> None:
        for part in parts(rows(count), PER_REQUEST):
            records = [{"Data": encode(row), "PartitionKey": row["sensor_id"]} for row in part]
            found = self.client.put_records(StreamName=name, Records=records)
            expect(found["FailedRecordCount"], 0, "refused")

    def batches(self, name: str) -> Iterator[list[Any]]:
        """Yield the batches until none are left. It uses a separate client, like a source's subtask."""
        client = self.server.client()
        (shard,) = client.list_shards(StreamName=name)["Shards"]
        begin = {"StreamName": name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**begin)["ShardIterator"]
        while True:
            found = client.get_records(ShardIterator=iterator, Limit=10_000)
            if not found["Records"]:
                return
            iterator = found["NextShardIterator"]
            yield found["Records"]

    def check(self, name: str, count: int) -> None:
        expect(sum(map(len, self.batches(name))), count, "records written")
        self.client.delete_stream(StreamName=name)


def _read(streams: _Streams, count: int) -> Cost:
    name = streams.filled(count)
    source = KinesisSource(name, JsonLinesFormat(FIELDS), endpoint=streams.server.url, start="trim_horizon")
    return job.read(source, count)


def _bare_read(streams: _Streams, count: int) -> Cost:
    name = streams.filled(count)
    return consumed(count, ([decode(record["Data"]) for record in some] for some in streams.batches(name)))


def _put(streams: _Streams, count: int) -> Cost:
    name = streams.new()
    sink = KinesisStreamsSink.builder().set_stream_name(name).set_serialization_schema(JsonLinesEncoder())
    sink = sink.set_partition_key_generator(lambda row: row["sensor_id"])
    properties = {"aws.region": REGION, "aws.endpoint": streams.server.url}
    cost = job.write(sink.set_kinesis_client_properties(properties).build(), count)
    streams.check(name, count)
    return cost


def _bare_put(streams: _Streams, count: int) -> Cost:
    name = streams.new()
    cost = timed(count, partial(streams.put, name, count))
    streams.check(name, count)
    return cost
