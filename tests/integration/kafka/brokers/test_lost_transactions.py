"""Transactions that brokers end: exhausted epochs, forgotten ids and timeouts. Also producers that idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import SinkError
from penstock.connectors.kafka.client import package
from penstock.connectors.kafka.sink.transaction import Owner
from penstock.datastream.connectors.kafka import DeliveryGuarantee
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import SubmitOptions
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
from tests.integration.kafka.test_sink import JOB, UID, committer, numbers, writer
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
HASTY = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
LAST_EPOCH = 32_766


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Start a broker that forgets ids after two seconds."""
    with KafkaServer(tmp_path_factory.mktemp("hasty"), properties=HASTY) as server:
        yield server


def raise_epoch(commits: Any, id: str, epoch: int) -> None:
    """Make the broker raise the id's epoch step by step."""
    client = commits._client
    request = package("aiokafka.protocol.transaction").InitProducerIdRequest(id, 10_000)

    async def up() -> None:
        found = -1
        while found < epoch:
            answer = await client._send_to_coordinator(id, request, "raised")
            assert answer.error_code == 0
            found = answer.producer_epoch

    client._run(up())


def written(writes: Any, number: int) -> list[Any]:
    writes.write([{"n": number}], None, 0)
    found: list[Any] = writes.prepare_commit(number)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 1, 2])
def test_exhausted_epochs_lose_and_repeat_nothing_and_a_timed_out_last_one_is_an_error(
    tmp_path: Path, version: int
) -> None:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
    with KafkaServer(tmp_path, transaction_version=version, properties=properties) as kafka:
        name, prefix = topic(kafka), new_name("epochs")
        built = sink(kafka.bootstrap_servers, name, prefix=prefix).set_property("transaction.timeout.ms", 5_000).build()
        commits = committer(built)
        raise_epoch(commits, Owner(prefix, JOB, UID).name(1, 0, 0), LAST_EPOCH - 2)
        writes, made = writer(built), []
        for n in range(6):
            committables = written(writes, n)
            commits.commit(committables)
            writes.notify_committed(n)
            made += committables
        mine = [(c["producer_id"], c["epoch"]) for c in made if c["id"].endswith("-1-0-0")]
        first = mine[0][0]
        assert mine[:2] == [(first, LAST_EPOCH - 1), (first, LAST_EPOCH)]
        assert mine[2][0] != first
        assert mine[2][1] == 0
        commits.commit(made)
        assert numbers(kafka, name) == list(range(6))
        writes.close()
        raise_epoch(commits, Owner(prefix, JOB, UID).name(2, 0, 0), LAST_EPOCH - 1)
        late = writer(built, attempt=2)
        (lost,) = written(late, 7)
        assert lost["epoch"] == LAST_EPOCH
        eventually(lambda: commits._client.describe(lost["id"]).state == "CompleteAbort", 30, "the time-out")
        for _ in range(2):
            with pytest.raises(SinkError, match="was aborted by the broker because it was open for longer"):
                commits.commit([lost])
            commits.discard_unreferenced([lost], 3)
        late.close()


def test_restoring_a_savepoint_after_the_broker_forgot_its_ids_is_an_error(hasty: KafkaServer) -> None:
    builder = sink(hasty.bootstrap_servers, topic(hasty))
    writes, commits = writer(builder.build()), committer(builder.build())
    committables = written(writes, 1)
    commits.commit(committables)
    eventually(lambda: commits._client.describe(committables[0]["id"]) is None, 30, "the id's end")
    with pytest.raises(SinkError, match=r"(?s)the cluster no longer knows.*its 1 records"):
        commits.commit(committables)
    committer(builder.set_unknown_transactions("accept").build()).commit(committables)
    writes.close()


def test_a_writer_that_idles_beyond_the_transaction_timeout_keeps_no_transaction_open(kafka: KafkaServer) -> None:
    name = topic(kafka)
    built = sink(kafka.bootstrap_servers, name).set_property("transaction.timeout.ms", 1_000).build()
    writes, commits = writer(built), committer(built)
    states = commits._client.find(built.prefix)
    assert set(states.values()) <= {"Empty"}
    time.sleep(3)  # three times the transaction timeout
    fill(kafka.bootstrap_servers, name, [{"n": 0}])
    assert numbers(kafka, name) == [0]  # no open transaction blocks readers
    commits.commit(written(writes, 1))
    assert numbers(kafka, name) == [0, 1]
    writes.close()


def test_a_producer_whose_id_was_forgotten_while_it_idled_is_an_error_and_not_a_loss(hasty: KafkaServer) -> None:
    name = topic(hasty)
    built = sink(hasty.bootstrap_servers, name).build()
    writes, commits = writer(built), committer(built)
    id = writes._producer.id
    eventually(lambda: commits._client.describe(id) is None, 30, "the id's end")
    with pytest.raises(SinkError, match="cannot"):
        written(writes, 1)
    writes.close()
    again = writer(built, attempt=2)
    commits.commit(written(again, 1))
    assert numbers(hasty, name) == [1]
    again.close()


def test_the_error_for_a_transaction_timeout_contains_how_long_it_was_open(hasty: KafkaServer) -> None:
    built = sink(hasty.bootstrap_servers, topic(hasty)).set_property("transaction.timeout.ms", 1_000).build()
    writes, commits = writer(built), committer(built)
    writes.write([{"n": 1}], None, 0)
    writes._producer.flush()
    id = writes._producer.id

    def is_aborted() -> bool:
        found = commits._client.describe(id)
        return found is None or found.state == "CompleteAbort"

    eventually(is_aborted, 30, "the time-out")
    with pytest.raises(
        SinkError, match=r"(?s)has been open for \d+ ms.*transaction.timeout.ms \(1000 ms\).*next attempt"
    ):
        written(writes, 2)
    writes.close()


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE])
def test_a_broker_that_pauses_beyond_the_message_timeout_loses_nothing(
    tmp_path: Path, guarantee: DeliveryGuarantee
) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        reads, writes = topic(kafka, 2, "in"), topic(kafka, 2, "out")
        settings = {"type": "fixed-delay", "fixed-delay.delay": "100 ms", "fixed-delay.attempts": "100"}
        env = environment(tmp_path, **{f"restart-strategy.{name}": value for name, value in settings.items()})
        built = sink(kafka.bootstrap_servers, writes, guarantee).set_property("message.timeout.ms", 1_500)
        counting(env, source(kafka.bootstrap_servers, reads).build(), built.build())
        master = started(env)
        fill(kafka.bootstrap_servers, reads, records(500), 2)
        until(lambda: len(read(kafka.bootstrap_servers, writes)) >= 500, master)
        fill(kafka.bootstrap_servers, reads, records(5_000, 500), 2)
        kafka.pause()
        time.sleep(5)  # messages live for 1.5 s
        kafka.resume()
        fill(kafka.bootstrap_servers, reads, records(500, 5_500), 2)

        def all_there() -> bool:
            return len({value["id"] for value in values_of(read(kafka.bootstrap_servers, writes))}) == 6_000

        until(all_there, master)
        master.request(Operation("cancel"))
        master.wait(30)
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            assert verdict(kafka.bootstrap_servers, writes, 6_000) == ""


def test_a_savepoint_is_committed_by_its_stop_and_restored_twice(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, prefix = topic(kafka, 2, "in"), new_name("prefix")
    writes = topic(kafka, 2, "out")

    def start(restore: str = "") -> Any:
        env = environment(tmp_path)
        counting(
            env,
            source(kafka.bootstrap_servers, reads).build(),
            sink(kafka.bootstrap_servers, writes, prefix=prefix).build(),
        )
        return started(env, SubmitOptions(restore_path=restore) if restore else None)

    def stopped(master: Any) -> str:
        operation = master.request(Operation("stop"))
        operation.wait(30)
        master.wait(30)
        return str(operation.location)

    fill(kafka.bootstrap_servers, reads, records(500), 2)
    master = start()
    until(lambda: len(read(kafka.bootstrap_servers, writes)) > 0, master)
    savepoint = stopped(master)
    once = len(read(kafka.bootstrap_servers, writes))
    time.sleep(0.5)  # no message follows the stop
    assert len(read(kafka.bootstrap_servers, writes)) == once
    fill(kafka.bootstrap_servers, reads, records(500, 500), 2)
    for times in (1, 2):
        wanted = once + times * (1_000 - once)
        fork = start(savepoint)
        until(lambda wanted=wanted: len(read(kafka.bootstrap_servers, writes)) >= wanted, fork)
        stopped(fork)
        assert len(read(kafka.bootstrap_servers, writes)) == wanted
