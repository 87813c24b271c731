"""The recording of the kept savepoint of `kafka_job`, with a real broker.

The savepoint is in `savepoint`. `facts.json` contains facts of the broker before any transaction of the savepoint was
committed:

- `topic_ids`: the id of the input.
- `committed`: the output that was committed before.
- `pending`: the output in the transactions of the savepoint, by transactional id.
- `transactions`: producer id, epoch and timeout (ms) of these transactions, by transactional id.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka.admin import NewPartitions

from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.connectors.kafka.sink.transaction import Description
from penstock.jobmanager.job.requests import Operation
from penstock.testing import JobHarness
from tests.golden import kafka_job as job
from tests.golden.capture import called_first, take_savepoint
from tests.integration.kafka.support import read, values_of
from tools.servers.kafka import KafkaServer

SLOW = {"penstock.epoch.max-records": "8"}
"""Settings with few records per epoch, so that the savepoint contains partitions that were read to the middle."""
PATIENCE_S = 300.0
STEP_MS = 20


def record_kafka(target: Path, parallelism: int) -> None:
    """Write the savepoint and the facts into `target`.

    Raises:
        ValueError: the savepoint lacks a kind of position or commit. Record it again.
    """
    open_ones: list[Description] = []
    outputs: list[Any] = []
    with (
        TemporaryDirectory() as folder,
        KafkaServer(Path(folder)) as kafka,
        JobHarness(parallelism, configuration=SLOW) as harness,
    ):
        _go_on_to_savepoint(kafka, harness)
        servers = kafka.bootstrap_servers

        def look() -> None:
            if not outputs:
                open_ones.extend(_open_transactions(servers))
                outputs.extend(values_of(read(servers, job.WRITES, committed=committed)) for committed in (True, False))

        with called_first(KafkaCommitter, "commit", look):
            take_savepoint(harness, target / "savepoint")
            harness._driver.master.parts.commits.drain()
    facts = _facts(target / "savepoint", open_ones, *outputs)
    (target / "facts.json").write_text(json.dumps(facts) + "\n")


def _go_on_to_savepoint(kafka: KafkaServer, harness: JobHarness) -> None:
    """Start the job, and run it until its partitions have the positions for the savepoint."""
    servers = kafka.bootstrap_servers
    kafka.create_topic(job.READS, job.FIRST_PARTITIONS)
    kafka.create_topic(job.WRITES, job.WRITTEN_PARTITIONS)
    job.write_before(servers, range(job.FIRST_PARTITIONS))
    job.build(harness.environment(), servers)
    harness._start()
    _run_until(harness, lambda at: at[0] > 0 and at[3] > 0)
    kafka.admin().create_partitions([NewPartitions(job.READS, job.PARTITIONS)])[job.READS].result(30)
    job.write_before(servers, range(job.FIRST_PARTITIONS, job.PARTITIONS))
    for _ in range(4):  # these transactions are committed, so that those of the savepoint reuse their ids
        before = _positions(harness)
        _run_until(harness, lambda at, before=before: at[0] > before[0] and at[3] > before[3])
        harness._driver.request(Operation("checkpoint"))
        harness._driver.master.parts.commits.drain()
    harness.clock.set(2_000)  # the next step discovers partitions
    before = _positions(harness)
    _run_until(
        harness, lambda at: at[0] > before[0] and at[3] > before[3] and at[1] == job.END_OF_1 and at.get(4, 0) > 0
    )


def _run_until(harness: JobHarness, condition: Callable[[dict[int, int]], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition(_positions(harness)):
        if time.monotonic() > deadline:
            raise ValueError(f"the positions of the partitions are {_positions(harness)}: record again")
        harness._driver._step()
        time.sleep(STEP_MS / 1000)
        harness.clock.set(harness.clock.now_ms() + STEP_MS)  # a partition without records is read again later


def _positions(harness: JobHarness) -> dict[int, int]:
    splits = harness._driver.master.parts.sources["in"].snapshot().splits
    return {split.properties["partition"]: split.position or 0 for split in splits}


def _open_transactions(servers: str) -> list[Description]:
    client = CoordinatorClient({"bootstrap.servers": servers}, 60.0, lambda: None)
    try:
        return [found for found in client.describe_all(client.find(f"{job.PREFIX}-")) if found.is_open]
    finally:
        client.close()


def _facts(savepoint: Path, open_ones: list[Description], committed: list[Any], written: list[Any]) -> dict[str, Any]:
    manifest = resolve(f"file://{savepoint}").manifest
    splits = manifest.sources["in"].splits
    read_ids = {
        number
        for split in splits
        for number in job.BEFORE.get(split.properties["partition"], [])[: split.position or 0]
    }
    committed_ids = {number for number, _, _ in committed}
    pending: dict[str, list[Any]] = {committable["id"]: [] for committable in manifest.commits["out"]}
    for number, count, subtask in written:
        if number in read_ids - committed_ids:
            (id,) = (id for id in pending if id.split("-")[-2] == str(subtask))
            pending[id].append([number, count, subtask])
    epochs = [found.epoch for found in open_ones if found.id in pending]
    positions = {split.properties["partition"]: split.position for split in splits}
    halves = [0 < positions[partition] < len(job.BEFORE[partition]) for partition in (0, 3)]
    if not all(halves) or len(pending) < 2 or not any(epochs) or not committed:
        raise ValueError(f"record again: positions {positions}, epochs {epochs}, committed {len(committed)}")
    return {
        "topic_ids": {split.properties["topic"]: split.id.split("@")[1] for split in splits},
        "committed": committed,
        "pending": pending,
        "transactions": {
            found.id: {"producer_id": found.producer_id, "epoch": found.epoch, "timeout_ms": found.timeout_ms}
            for found in open_ones
            if found.id in pending
        },
    }
