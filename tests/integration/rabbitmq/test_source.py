"""Messages are acknowledged when their checkpoint is complete. Redelivered messages are recognised by their ids."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, PenstockError, RecordFormatError, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.connectors.rabbitmq.consumer import MANY_TIMES
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
from penstock.datastream.formats.json import JsonLinesFormat
from tests.integration.rabbitmq.queues import Queue, channel_to, config_of, cut
from tools.servers.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
def queue(rabbitmq: RabbitMQServer) -> Queue:
    return Queue(rabbitmq)


class Reading:
    """A subtask with one consumer."""

    def __init__(self, source: RMQSource, position: Any = None) -> None:
        self.subtask = source.create_reader(ReaderContext(0, 1, "in"))
        self.reader: Any = self.subtask.open_split(Split("consumer-0"), json.loads(json.dumps(position)))

    def take(self, count: int, patience: float = 10.0) -> list[Any]:
        values: list[Any] = []
        deadline = time.monotonic() + patience
        while len(values) < count and time.monotonic() < deadline:
            batch = self.reader.read(ReadBounds(max_records=min(7, count - len(values))))
            if batch is None:
                time.sleep(0.01)
            else:
                values += batch.rows().values
        return values

    def nothing(self) -> bool:
        return self.take(1, patience=0.3) == []

    def checkpoint(self, number: int) -> Any:
        self.subtask.snapshot(number)
        return self.reader.position

    def complete(self, number: int) -> None:
        self.subtask.notify_checkpoint_complete(number)

    def close(self) -> None:
        self.reader.close()
        self.subtask.close()


@pytest.fixture
def reading() -> Iterator[Any]:
    opened: list[Reading] = []

    def read(source: RMQSource, position: Any = None) -> Reading:
        opened.append(Reading(source, position))
        return opened[-1]

    yield read
    for found in opened:
        found.close()


def numbers(*ranges: Any) -> list[str]:
    return [str(number) for found in ranges for number in found]


def test_only_messages_of_a_complete_checkpoint_are_acknowledged(queue: Queue, reading: Any) -> None:
    queue.publish(range(30))
    first = reading(queue.source())
    assert first.take(10) == numbers(range(10))
    first.checkpoint(1)
    assert first.take(10) == numbers(range(10, 20))
    position = first.checkpoint(2)
    first.complete(1)
    first.close()
    assert queue.left() == 20
    second = reading(queue.source(), position)
    assert second.take(10) == numbers(range(20, 30))
    second.checkpoint(3)
    second.complete(3)
    second.close()
    assert queue.left() == 0


def test_a_checkpoint_without_its_acknowledgement_repeats_nothing(queue: Queue, reading: Any) -> None:
    queue.publish(range(20))
    first = reading(queue.source())
    first.take(12)
    position = first.checkpoint(1)
    first.close()
    for _ in range(3):  # redeliver them again, without new messages in between
        again = reading(queue.source(), position)
        assert again.take(8) == numbers(range(12, 20))
        again.close()


def test_many_redelivered_messages_are_dropped_in_one_read(queue: Queue, reading: Any) -> None:
    queue.publish(range(300))
    first = reading(queue.source())
    first.take(299)
    position = first.checkpoint(1)
    first.close()
    second = reading(queue.source(), position)
    deadline = time.monotonic() + 10
    while second.reader._consumer._delivered < 300 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert second.reader.read(ReadBounds(max_records=1)).rows().values == ["299"]


def test_messages_without_ids_are_redelivered_until_they_are_acknowledged(queue: Queue, reading: Any) -> None:
    queue.publish(range(6))
    first = reading(queue.source(exact=False))
    assert first.take(6) == numbers(range(6))
    assert first.checkpoint(1) == ""
    first.close()
    second = reading(queue.source(exact=False), "")
    assert second.take(6) == numbers(range(6))
    second.checkpoint(2)
    second.complete(2)
    second.close()
    assert queue.left() == 0


def test_ids_leave_the_state_when_their_messages_cannot_come_again(
    queue: Queue, reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.rabbitmq.consumer._COUNT_S", 0.2)
    queue.publish(range(50))
    found = reading(queue.source(keep_ids=200))
    found.take(50)
    full = found.checkpoint(1)
    found.complete(1)
    deadline = time.monotonic() + 10
    while found.reader.position and time.monotonic() < deadline:
        assert found.nothing()
    assert len(full) > 50 * 16
    assert found.reader.position == ""


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_restored_ids_are_kept_while_their_messages_exceed_the_prefetch_count(
    rabbitmq: RabbitMQServer, reading: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("penstock.connectors.rabbitmq.consumer._COUNT_S", 0.2)
    queue = Queue(rabbitmq, **{"x-queue-type": kind})
    queue.publish(range(300))
    first = reading(queue.source())
    assert len(first.take(300)) == 300
    position = first.checkpoint(1)
    first.close()
    second = reading(queue.source(config=config_of(rabbitmq.uri, prefetch_count=20), keep_ids=0), position)
    values: list[Any] = []
    deadline = time.monotonic() + 30
    number = 1
    while second.reader.position and time.monotonic() < deadline:
        batch = second.reader.read(ReadBounds())
        values += [] if batch is None else batch.rows().values
        number += 1
        second.checkpoint(number)
        second.complete(number)
        time.sleep(0.01)
    assert values == []
    assert second.reader.position == ""
    second.close()
    assert queue.left() == 0


def test_at_most_the_prefetch_count_is_delivered_before_a_checkpoint(queue: Queue, reading: Any) -> None:
    queue.publish(range(50))
    found = reading(queue.source(config=config_of(queue.server.uri, prefetch_count=20)))
    assert found.take(50, patience=1.0) == numbers(range(20))
    assert queue.left() == 30
    found.checkpoint(1)
    found.complete(1)
    assert found.take(50, patience=1.0) == numbers(range(20, 40))


def test_a_reconnect_after_a_lost_connection_repeats_nothing(queue: Queue, reading: Any) -> None:
    queue.publish(range(40))
    found = reading(queue.source())
    seen = found.take(15)
    cut(found.reader._consumer._connection._impl)
    seen += found.take(25)
    assert seen == numbers(range(40))
    while found.reader._consumer.number < 2 or found.reader._consumer._delivered < 40:
        assert found.nothing()
    assert found.nothing()
    found.checkpoint(1)
    found.complete(1)
    found.close()
    assert queue.left() == 0


def test_heartbeats_continue_while_a_function_is_slow(queue: Queue, reading: Any) -> None:
    queue.publish(range(4))
    found = reading(queue.source(config=config_of(queue.server.uri, requested_heartbeat=1)))
    assert found.take(2) == numbers(range(2))
    time.sleep(4)  # a slow function
    assert found.reader._consumer.number == 1
    assert found.take(2) == numbers(range(2, 4))


def test_records_have_their_messages_times_and_bad_messages_a_side_output(queue: Queue, reading: Any) -> None:
    queue.put(b'{"n": 1}', correlation_id="a", timestamp=1_700_000_000)
    queue.put(b"none", correlation_id="b", timestamp=1_700_000_001)
    queue.put(b'{"n": 3}', correlation_id="c", timestamp=1_700_000_002)
    found = reading(queue.source(JsonLinesFormat({"n": int}), on_error="side-output"))
    batches, rejected = [], []
    deadline = time.monotonic() + 10
    while len(batches) + len(rejected) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
        batch = found.reader.read(ReadBounds())
        batches += [] if batch is None else [batch.rows()]
        rejected += found.reader.take_rejected()
    assert [value for batch in batches for value in batch.values] == [{"n": 1}, {"n": 3}]
    assert [at for batch in batches for at in batch.timestamps] == [1_700_000_000_000, 1_700_000_002_000]
    assert [(bad.queue, bad.correlation_id, bad.body) for bad in rejected] == [(queue.name, "b", b"none")]
    failing = reading(queue.source(JsonLinesFormat({"n": int}), exact=False))
    found.close()
    with pytest.raises(RecordFormatError, match=r"malformed message in queue .*'b'"):
        failing.take(3)


def test_a_message_without_an_id_cannot_be_read_exactly_once(queue: Queue, reading: Any) -> None:
    queue.put(b"1")
    with pytest.raises(RecordFormatError, match="no correlation id"):
        reading(queue.source()).take(1)


def test_subtasks_share_a_queue_without_ids_and_one_reads_it_with_them(queue: Queue) -> None:
    for exact, wanted in ((True, 1), (False, 3)):
        enumerator = queue.source(exact=exact).create_enumerator()
        enumerator.parallelism = 3
        assert len(enumerator.discover()) == wanted
        assert enumerator.discover() == []


def error_of(found: Reading) -> PenstockError:
    with pytest.raises(SourceError) as error:
        found.take(1_000, patience=30.0)
    return error.value


def test_a_queue_that_is_deleted_during_the_job_is_an_error(queue: Queue, reading: Any) -> None:
    queue.publish(range(3))
    found = reading(queue.source())
    found.take(3)
    queue.delete()
    error = error_of(found)
    assert f"no queue '{queue.name}'" in error.message
    assert "deleted during the job" in error.remedy


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_another_consumer_is_an_error_for_an_exactly_once_source(
    rabbitmq: RabbitMQServer, reading: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    queue = Queue(rabbitmq, **{"x-queue-type": kind})
    monkeypatch.setattr("penstock.connectors.rabbitmq.client.PATIENCE_S", 0.2)
    with channel_to(queue.server.uri) as channel:
        channel.basic_consume(queue.name, lambda *_: None)
        found = reading(queue.source(config=config_of(queue.server.uri, requested_heartbeat=0)))
        assert "stop the other consumer" in error_of(found).remedy


def test_a_broker_that_remains_unavailable_is_an_error_with_its_reason(
    queue: Queue, reading: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.rabbitmq.client.PATIENCE_S", 0.5)
    gone = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(1).build()
    assert "Connection refused" in error_of(reading(queue.source(config=gone))).message


def test_a_source_that_cannot_read_is_an_error_at_the_start(queue: Queue) -> None:
    server = queue.server
    for user, vhost in (("blind", "/"), ("stranger", None)):
        add_user(server, user, vhost)
    builder = RMQConnectionConfig.Builder
    for config, wanted, remedy in (
        (builder().set_host("127.0.0.1").set_port(1).build(), "Connection refused", "check that the broker runs"),
        (builder().set_host("no.such.host.invalid").build(), "no.such.host.invalid|not known", "host"),
        (config_of(server.uri_of("admin", "wrong")), "403 ACCESS_REFUSED|Login was refused", "password"),
        (config_of(server.uri_of("admin", server.password, "nowhere")), "vhost nowhere not found", "add_vhost"),
        (config_of(server.uri_of("stranger", "secret")), "access to vhost '/' refused", "set_permissions"),
        (config_of(server.uri_of("blind", "secret")), "access to queue .* refused", "right to read"),
    ):
        with pytest.raises(SourceError, match=wanted) as error:
            queue.source(config=config).validate()
        assert remedy in error.value.remedy
    queue.source().validate()
    with pytest.raises(SourceError, match="no queue 'nothing'") as error:
        RMQSource(config_of(server.uri), "nothing", True, queue.source().schema).validate()
    assert "create_queue=True" in error.value.remedy
    RMQSource(config_of(server.uri), f"{queue.name}-new", True, queue.source().schema, create_queue=True).validate()
    with pytest.raises(InvalidJob, match="without checkpoints"):
        queue.source().check_checkpoints(0)


def add_user(server: RabbitMQServer, user: str, vhost: str | None) -> None:
    server.command("add_user", user, "secret")
    if vhost is not None:
        server.command("set_permissions", "-p", vhost, user, "^$", "^$", "^$")


def test_a_password_may_be_in_a_file(queue: Queue, reading: Any, tmp_path: Any) -> None:
    secret = tmp_path / "password"
    builder = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(queue.server.port).set_user_name("admin")
    config = builder.set_password_file(str(secret)).build()
    with pytest.raises(SourceError, match="cannot be read"):
        queue.source(config=config).validate()
    secret.write_text(queue.server.password + "\n")
    queue.source(config=config).validate()
    queue.publish(range(1))
    assert reading(queue.source(config=config)).take(1) == ["0"]


def test_the_source_warns_of_a_message_that_was_redelivered_many_times(
    rabbitmq: RabbitMQServer, reading: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A quorum queue finally drops such a message."""
    queue = Queue(rabbitmq, **{"x-queue-type": "quorum"})
    queue.publish([1])
    with channel_to(rabbitmq.uri) as channel:
        given = 0
        while given < MANY_TIMES:
            method, _, _ = channel.basic_get(queue.name)
            if method is not None:
                channel.basic_nack(method.delivery_tag, requeue=True)
                given += 1
    found = reading(queue.source())
    assert found.take(1) == ["1"]
    assert f"redelivered a message {MANY_TIMES} times" in caplog.text
    assert "delivery-limit -1" in caplog.text
