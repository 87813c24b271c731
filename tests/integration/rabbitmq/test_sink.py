"""A checkpoint waits until the broker has every message. Messages that the broker rejects or cannot route are errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.rabbitmq import RMQSink
from penstock.datastream.formats.json import JsonLinesEncoder
from tests.integration.rabbitmq.queues import Queue, channel_to, config_of, cut
from tools.servers.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
def queue(rabbitmq: RabbitMQServer) -> Queue:
    return Queue(rabbitmq)


@pytest.fixture
def writer() -> Iterator[Any]:
    opened: list[Any] = []

    def write(sink: RMQSink) -> Any:
        opened.append(sink.create_writer(WriterContext(0, 1, 0, "out", "job"), []))
        return opened[-1]

    yield write
    for found in opened:
        found.close()


def test_a_checkpoint_has_all_messages_confirmed(queue: Queue, writer: Any) -> None:
    out = writer(queue.sink())
    for begin in range(0, 25_000, 5_000):
        out.write([str(number) for number in range(begin, begin + 5_000)], None, 0)
    assert out.prepare_commit(1) == []
    assert queue.left() == 25_000
    taken = queue.take(3)
    assert [body for _, body in taken] == [b"0", b"1", b"2"]
    assert taken[0][0].delivery_mode == 2


def test_exchange_routing_key_and_properties_depend_on_the_record(queue: Queue, writer: Any) -> None:
    exchange = f"x-{queue.name}"
    with channel_to(queue.server.uri) as channel:
        channel.exchange_declare(exchange, "topic", durable=True)
        channel.queue_bind(queue.name, exchange, "alert.*")
    sink = RMQSink(
        config_of(queue.server.uri),
        "",
        JsonLinesEncoder(),
        exchange=exchange,
        routing_key=lambda record: f"alert.{record['at']}",
        properties=lambda record: {"correlation_id": str(record["n"]), "headers": {"n": record["n"]}, "priority": 3},
    )
    sink.validate()
    out = writer(sink)
    out.write([{"n": number, "at": "home"} for number in range(3)], None, 0)
    out.prepare_commit(1)
    found = queue.take(3)
    assert [body for _, body in found] == [b'{"n":0,"at":"home"}', b'{"n":1,"at":"home"}', b'{"n":2,"at":"home"}']
    assert [(about.correlation_id, about.headers, about.priority) for about, _ in found][1] == ("1", {"n": 1}, 3)


def test_a_message_without_a_queue_is_an_error(queue: Queue, writer: Any) -> None:
    out = writer(
        RMQSink(config_of(queue.server.uri), "", SimpleStringSchema(), exchange="amq.direct", routing_key="no")
    )
    out.write(["lost"], None, 0)
    with pytest.raises(SinkError, match=r"no queue for a message to exchange 'amq.direct', routing key 'no'.*NO_ROUTE"):
        out.prepare_commit(1)


def test_a_message_that_a_full_queue_refuses_is_an_error(rabbitmq: RabbitMQServer, writer: Any) -> None:
    queue = Queue(rabbitmq, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    out = writer(queue.sink())
    out.write(["1", "2"], None, 0)
    out.prepare_commit(1)
    out.write(["3", "4"], None, 0)
    with pytest.raises(SinkError, match="has rejected a message") as error:
        out.prepare_commit(2)
    assert "reject-publish" in error.value.remedy


def test_an_exchange_that_is_deleted_during_the_job_is_an_error(queue: Queue, writer: Any) -> None:
    exchange = f"x-{queue.name}"
    with channel_to(queue.server.uri) as channel:
        channel.exchange_declare(exchange, "fanout")
        channel.queue_bind(queue.name, exchange)
    out = writer(RMQSink(config_of(queue.server.uri), "", SimpleStringSchema(), exchange=exchange))
    out.write(["1"], None, 0)
    out.prepare_commit(1)
    with channel_to(queue.server.uri) as channel:
        channel.exchange_delete(exchange)
    out.write(["2"], None, 0)
    with pytest.raises(SinkError, match=f"no exchange '{exchange}'"):
        out.prepare_commit(2)


def test_a_connection_lost_with_unconfirmed_messages_loses_none(queue: Queue, writer: Any) -> None:
    out = writer(queue.sink())
    for number in range(4):
        out.write([f"{number}-{index}" for index in range(3_000)], None, 0)
        cut(out._publisher._connection)
    out.prepare_commit(1)
    bodies = {body.decode() for _, body in queue.take(queue.left())}
    assert bodies == {f"{number}-{index}" for number in range(4) for index in range(3_000)}


def test_a_broker_that_remains_unavailable_is_an_error_with_its_reason(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.rabbitmq.client.PATIENCE_S", 0.5)
    out = writer(RMQSink(config_of("amqp://a:b@127.0.0.1:1/"), "q", SimpleStringSchema()))
    out.write(["1"], None, 0)
    with pytest.raises(SinkError, match="Connection refused"):
        out.prepare_commit(1)


def test_a_broker_that_confirms_nothing_is_an_error(queue: Queue, writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.rabbitmq.publisher.PATIENCE_S", 0.5)
    out = writer(queue.sink())
    out.write(["1"], None, 0)
    out.prepare_commit(1)
    queue.server.pause()
    try:
        out.write(["2"], None, 0)
        with pytest.raises(SinkError, match="has confirmed none of 1 messages"):
            out.prepare_commit(2)
    finally:
        queue.server.resume()


def test_a_writer_waits_while_too_many_messages_are_unconfirmed(queue: Queue, writer: Any) -> None:
    out = writer(queue.sink())
    out.write(["1"], None, 0)
    out.prepare_commit(1)
    queue.server.pause()
    thread = threading.Thread(target=out.write, args=(["x" * 1000] * 60_000, None, 0))
    thread.start()
    time.sleep(0.5)
    try:
        assert thread.is_alive()
        assert out._publisher._waiting <= 10_000
    finally:
        queue.server.resume()
        thread.join(60)
    out.prepare_commit(2)
    assert queue.left() == 60_001


def test_a_sink_that_cannot_write_is_an_error_at_the_start(queue: Queue) -> None:
    server = queue.server
    server.command("add_user", "mute", "secret")
    server.command("set_permissions", "-p", "/", "mute", "^$", "^$", "^$")
    for uri, wanted, remedy in (
        (server.uri_of("admin", "wrong"), "Login was refused", "password"),
        (server.uri_of("admin", server.password, "nowhere"), "vhost nowhere not found", "add_vhost"),
        (server.uri_of("mute", "secret"), "access to exchange .* refused", "right to write"),
    ):
        with pytest.raises(SinkError, match=wanted) as error:
            RMQSink(config_of(uri), queue.name, SimpleStringSchema()).validate()
        assert remedy in error.value.remedy
    with pytest.raises(SinkError, match="no queue 'nothing'"):
        RMQSink(config_of(server.uri), "nothing", SimpleStringSchema()).validate()
    with pytest.raises(SinkError, match="no exchange 'nothing'"):
        RMQSink(config_of(server.uri), "", SimpleStringSchema(), exchange="nothing").validate()
    RMQSink(config_of(server.uri), f"{queue.name}-new", SimpleStringSchema(), create_queue=True).validate()
    queue.sink().validate()
    assert queue.left() == 0


def test_a_sink_has_a_queue_or_an_exchange() -> None:
    config = config_of("amqp://localhost/")
    with pytest.raises(InvalidJob, match="queue_name=''"):
        RMQSink(config, "", SimpleStringSchema())
    with pytest.raises(InvalidJob, match="exchange='x'"):
        RMQSink(config, "q", SimpleStringSchema(), exchange="x")
