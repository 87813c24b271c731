"""Kept savepoints of a job between Kafka topics: their positions and transactions are decoded and used with a real
broker.

The broker of the recording no longer exists. `open_again` opens the transactions of a savepoint on a new broker.
Brokers number producers in the order of their arrival. So the transactions get the producer ids and epochs of the
savepoint.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.checkpoint.files.manifest import Manifest
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.connectors.core.source import ReaderContext, Split
from penstock.connectors.kafka.offsets import KafkaTopicPartition
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.connectors.kafka.sink.transaction import Owner, Transaction
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.golden import kafka_job as job
from tests.golden.record import SETS
from tests.in_process import environment, started, until
from tests.integration.kafka.support import read, values_of
from tools.servers.kafka import KafkaServer

RELEASES = sorted(path.name for path in SETS.iterdir() if (path / "kafka").exists())
NOBODY = "127.0.0.1:1"
"""Address without a broker."""


def kept_manifest(release: str) -> Manifest:
    return resolve(f"file://{SETS / release / 'kafka' / 'savepoint'}").manifest


def kept_facts(release: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((SETS / release / "kafka" / "facts.json").read_text())
    return facts


def outputs_then(facts: dict[str, Any]) -> list[Any]:
    """Return the complete output of the job at the savepoint."""
    return [*facts["committed"], *chain.from_iterable(facts["pending"].values())]


@pytest.mark.parametrize("release", RELEASES)
def test_kept_positions_of_a_kafka_source_are_directly_after_the_read_records(release: str) -> None:
    facts, state = kept_facts(release), kept_manifest(release).sources["in"]
    reader = job.source(NOBODY).create_reader(ReaderContext(0, 1, "in"))
    positions = {}
    for split in state.splits:
        opened = reader.open_split(Split(split.id, split.properties, split.size), split.position)
        positions[split.properties["partition"]] = opened.position
    reader.close()
    seen = {number for number, _, _ in outputs_then(facts)}
    was_read = {partition: [n for n in numbers if n in seen] for partition, numbers in job.BEFORE.items()}
    for partition in (0, 3, 4):
        assert was_read[partition] == job.BEFORE[partition][: positions[partition]]
    assert 0 < positions[0] < len(job.BEFORE[0])
    assert was_read[1] == job.BEFORE[1]
    assert positions[1] == job.END_OF_1
    assert positions[2] == len(job.SKIPPED)
    assert sorted(positions) == list(range(job.PARTITIONS))


@pytest.mark.parametrize("release", RELEASES)
def test_the_kept_state_of_a_kafka_source_has_its_partitions_and_topics(release: str) -> None:
    state = kept_manifest(release).sources["in"]
    enumerator = job.source(NOBODY).create_enumerator()
    enumerator.restore(state.enumerator["state"])
    assert enumerator._known == {KafkaTopicPartition(job.READS, number) for number in range(job.PARTITIONS)}
    assert enumerator._topics == kept_facts(release)["topic_ids"]
    assert enumerator._has_discovered
    enumerator.close()


@pytest.mark.parametrize("release", RELEASES)
def test_kept_committables_of_a_kafka_sink_name_the_open_transactions_of_the_broker(release: str) -> None:
    facts, manifest = kept_facts(release), kept_manifest(release)
    transactions = [Transaction.of(committable) for committable in manifest.commits["out"]]
    assert {
        found.id: {"producer_id": found.producer_id, "epoch": found.epoch, "timeout_ms": found.timeout_ms}
        for found in transactions
    } == facts["transactions"]
    assert {found.id: found.records for found in transactions} == {
        id: len(records) for id, records in facts["pending"].items()
    }
    owner, later = (Owner(job.PREFIX, job_id, "out") for job_id in (manifest.job_id, "0" * 32))
    assert all(owner.attempt_of(found.id) == manifest.leader_epoch for found in transactions)
    assert all(later.is_of_another_job(found.id) for found in transactions)


def open_again(servers: str, facts: dict[str, Any]) -> None:
    """Open the transactions of the savepoint on a broker that has had no producer yet, and write into them."""
    next_id = 0
    for id, about in sorted(facts["transactions"].items(), key=lambda item: item[1]["producer_id"]):
        for number in range(next_id, about["producer_id"]):
            _producer(servers, f"another-{number}", 10_000)
        for _ in range(about["epoch"]):
            _producer(servers, id, about["timeout_ms"])
        producer = _producer(servers, id, about["timeout_ms"])
        producer.begin_transaction()
        for values in facts["pending"][id]:
            producer.produce(job.WRITES, json.dumps(values), partition=values[0] % job.WRITTEN_PARTITIONS)
        assert producer.flush(60) == 0
        next_id = about["producer_id"] + 1


def _producer(servers: str, id: str, timeout_ms: int) -> Producer:
    settings = {"transactional.id": id, "transaction.timeout.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(60)
    return producer


def states(servers: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the current facts of the broker about the savepoint's transactions, and the states of these."""
    client = CoordinatorClient({"bootstrap.servers": servers}, 60.0, lambda: None)
    found = client.describe_all(facts["transactions"])
    client.close()
    return {
        each.id: {"producer_id": each.producer_id, "epoch": each.epoch, "timeout_ms": each.timeout_ms} for each in found
    } | {"states": {each.state for each in found}}


def make_topics(kafka: KafkaServer) -> None:
    kafka.create_topic(job.READS, job.PARTITIONS)
    kafka.create_topic(job.WRITES, job.WRITTEN_PARTITIONS)


def restored(servers: str, release: str, folder: Path, parallelism: int, backend: str) -> JobMaster:
    """Start the job from a copy of the savepoint with the new id of the topic, because a cluster draws ids at random."""
    enumerator = job.source(servers).create_enumerator()
    (new_id,) = set(enumerator.find().values())
    enumerator.close()
    kept = SETS / release / "kafka" / "savepoint"
    text = (kept / "_metadata").read_text().replace(kept_facts(release)["topic_ids"][job.READS], new_id)
    for path in kept.rglob("*"):
        if path.is_file():
            copy = folder / "kept" / path.relative_to(kept)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (folder / "kept" / "_metadata").write_text(text)
    env = environment(folder, **{"state.backend.type": backend, "restart-strategy.type": "none"})
    env.set_parallelism(parallelism)
    job.build(env, servers)
    return started(env, SubmitOptions(restore_path=f"file://{folder}/kept"))


@pytest.mark.kafka
@pytest.mark.parametrize(("parallelism", "backend"), [(3, "rocksdb"), (1, "hashmap")])
@pytest.mark.parametrize("release", RELEASES)
def test_a_kept_savepoint_commits_its_transactions_and_continues_at_its_positions(
    release: str, parallelism: int, backend: str, tmp_path: Path
) -> None:
    facts = kept_facts(release)
    with KafkaServer(tmp_path / "kafka") as kafka:
        servers = kafka.bootstrap_servers
        make_topics(kafka)
        open_again(servers, facts)
        assert states(servers, facts) == facts["transactions"] | {"states": {"Ongoing"}}
        job.write_before(servers, range(job.PARTITIONS))
        assert read(servers, job.WRITES) == []
        master = restored(servers, release, tmp_path, parallelism, backend)
        for partition, numbers in job.AFTER.items():
            job.write(servers, partition, numbers)
        numbers = sorted(chain.from_iterable([*job.BEFORE.values(), *job.AFTER.values()]))
        missing = len(numbers) - len(facts["committed"])
        until(lambda: len(read(servers, job.WRITES)) >= missing, master)
        master.request(Operation("stop")).wait(60)
        master.wait(60)
        given = [*facts["committed"], *values_of(read(servers, job.WRITES))]
        assert states(servers, facts) == facts["transactions"] | {"states": {"CompleteCommit"}}
    assert sorted(number for number, _, _ in given) == numbers
    for key in range(job.KEYS):
        counts = sorted(count for number, count, _ in given if number % job.KEYS == key)
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.kafka
@pytest.mark.parametrize("release", RELEASES)
def test_a_kept_savepoint_with_transactions_unknown_to_the_broker_is_refused_and_writes_nothing(
    release: str, kafka: KafkaServer, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    make_topics(kafka)
    job.write_before(servers, range(job.PARTITIONS))
    master = restored(servers, release, tmp_path, 2, "hashmap")
    master.wait(60)
    assert master.history.status.value == "FAILED"
    assert "[SINK] the cluster no longer knows transaction 'golden-" in str(master.error)
    assert read(servers, job.WRITES) == []
    for name in (job.READS, job.WRITES):
        kafka.delete_topic(name)
