"""RabbitMQ in the conformance tests: a job from a queue to files, and one from files to a queue."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pika

from penstock.connectors.rabbitmq.consumer import Consumer
from penstock.connectors.rabbitmq.publisher import Publisher
from penstock.datastream.connectors.rabbitmq import RMQSink, RMQSource
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from tests.integration.connectors.connector import Call, Connector
from tests.integration.rabbitmq.queues import channel_to, config_of
from tools.servers.rabbitmq import RabbitMQServer


class QueueConnector(Connector):
    """The queue `q…` and the user `u…`. The file `password` contains the user's password.

    `address` is the URI of the administrator.
    """

    server = "rabbitmq"
    renews_credentials = True
    servers: ClassVar[dict[str, RabbitMQServer]] = {}
    """The server of each address. Only the process of the test has them, to execute commands."""

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._secret = folder / "password"

    @classmethod
    def address_of(cls, server: Any) -> str:
        cls.servers[server.uri] = server
        return str(server.uri)

    @property
    def queue(self) -> str:
        return f"q{self.id}"

    def set_up(self) -> None:
        super().set_up()
        with channel_to(self.address) as channel:
            channel.queue_declare(self.queue, durable=True)
        self._secret.write_text("first")
        rights = 'User, <<"/">>, <<".*">>, <<".*">>, <<".*">>, By'
        self._evaluate(
            f'rabbit_auth_backend_internal:add_user(User, <<"first">>, By), rabbit_auth_backend_internal:set_permissions({rights}).'
        )

    def renew_credentials(self) -> None:
        self._secret.write_text("second")
        self._evaluate(
            'rabbit_auth_backend_internal:change_password(User, <<"second">>, By), '
            'rabbit_networking:close_all_user_connections(User, <<"new password">>).'
        )

    def _evaluate(self, expression: str) -> None:
        """Evaluate Erlang in the node. One call is faster than one command for each step."""
        names = f'User = <<"u{self.id}">>, By = <<"test">>, '
        self.servers[self.address].command("eval", names + expression)

    def _config(self) -> Any:
        location = self.address.rpartition("@")[2]
        return config_of(f"amqp://u{self.id}@{location}", requested_heartbeat=2, password_file=str(self._secret))


class RabbitMqSourceConnector(QueueConnector):
    name = "rabbitmq-source"
    calls = {
        "before acknowledge": Call(Consumer, "acknowledge", is_before=True),
        "after acknowledge": Call(Consumer, "acknowledge"),
    }
    undecodable = "malformed message"
    pause_s = 5.0  # longer than the heartbeat timeout

    def source(self) -> RMQSource:
        on_error = "side-output" if self.is_healed else "fail"
        return RMQSource(self._config(), self.queue, True, JsonLinesFormat({"n": int}), on_error=on_error)

    def number_of(self, record: Any) -> int:
        return int(record["n"])

    def feed(self, numbers: Iterable[int]) -> None:
        self._publish((f"id-{number}", json.dumps({"n": number}).encode()) for number in numbers)

    def feed_poison(self) -> None:
        self._publish([("poison", b"none")])

    def _publish(self, messages: Iterable[tuple[str, bytes]]) -> None:
        with channel_to(self.address) as channel:
            channel.confirm_delivery()
            for id, body in messages:
                channel.basic_publish("", self.queue, body, pika.BasicProperties(correlation_id=id, delivery_mode=2))


class RabbitMqSinkConnector(QueueConnector):
    name = "rabbitmq-sink"
    calls = {"after send": Call(Publisher, "send")}
    is_exactly_once = False

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._taken: list[tuple[int, str]] = []

    def sink(self) -> RMQSink:
        return RMQSink(self._config(), self.queue, JsonLinesEncoder())

    def rows(self) -> list[tuple[int, str]]:
        """Take all messages from the queue, and return them with those that were taken before."""
        with channel_to(self.address) as channel:
            while (got := channel.basic_get(self.queue, auto_ack=True))[0] is not None:
                row = json.loads(got[2])
                self._taken.append((row["id"], row["key"]))
        return self._taken
