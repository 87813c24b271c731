"""SQS in the conformance tests: a job from a queue to files, and one from files to a queue."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.sqs.receiver import Receiver
from penstock.connectors.sqs.sink import SqsWriter
from penstock.datastream.connectors.sqs import SqsSink, SqsSource
from penstock.datastream.formats.json import JsonLinesFormat
from tests.integration.connectors.connector import Call, Connector
from tests.integration.sqs.queues import Queue
from tools.servers.sqs import KEYS

PATIENCE_MS = 5_000


class QueueConnector(Connector):
    """The queue `q…`. `address` is the server's URL."""

    server = "sqs"
    environment = KEYS
    pause_s = 3.0

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self.queue_url = f"{address}/000000000000/q{self.id}"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    @property
    def queue(self) -> Queue:
        return Queue(self.address, f"q{self.id}")

    def set_up(self) -> None:
        super().set_up()
        self.queue.create()


class SqsSourceConnector(QueueConnector):
    name = "sqs-source"
    calls = {
        "before delete": Call(Receiver, "_delete", is_before=True),
        "after delete": Call(Receiver, "_delete"),
    }
    undecodable = "malformed message"

    def source(self) -> SqsSource:
        options: Any = {"exactly_once": True, "visibility_timeout": 3_000, "patience": PATIENCE_MS}
        on_error = "side-output" if self.is_healed else "fail"
        return SqsSource(self.queue_url, JsonLinesFormat({"n": int}), on_error=on_error, **options)

    def number_of(self, record: Any) -> int:
        return int(record["n"])

    def feed(self, numbers: Iterable[int]) -> None:
        self.queue.fill(*(json.dumps({"n": number}) for number in numbers))

    def feed_poison(self) -> None:
        self.queue.fill("none")


class SqsSinkConnector(QueueConnector):
    name = "sqs-sink"
    calls = {"after send": Call(SqsWriter, "_request")}
    is_exactly_once = False
    refused = "is empty"

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._taken: list[tuple[int, str]] = []

    def sink(self) -> SqsSink:
        return SqsSink(self.queue_url, SimpleStringSchema(), patience=PATIENCE_MS)

    def record_of(self, number: Any, text: str) -> str:
        return json.dumps([number, text]) if isinstance(number, int) else ""

    def rows(self) -> list[tuple[int, str]]:
        """Take all messages from the queue, and return their rows with those that were taken before."""
        self._taken += [tuple(json.loads(message["Body"])) for message in self.queue.read()]
        return self._taken
