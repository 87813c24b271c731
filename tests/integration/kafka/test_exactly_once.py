"""Kafka -> keyed state -> Kafka: each record exactly once under faults. Readers see only committed messages."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from tests.in_process import environment, run
from tests.integration.kafka.running import end_offsets, endless, written
from tests.integration.kafka.support import (
    await_checkpoints,
    counting,
    eventually,
    fill,
    new_name,
    records,
    sink,
    source,
    topic,
    verdict,
)
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka


def test_a_bounded_job_writes_each_record_once(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 4, "in"), topic(kafka, 3, "out")
    fill(kafka.bootstrap_servers, reads, records(20_000), 4)
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    env.set_parallelism(2)
    bounded = source(kafka.bootstrap_servers, reads).set_bounded(KafkaOffsetsInitializer.latest())
    counting(env, bounded.build(), sink(kafka.bootstrap_servers, writes).build())
    run(env)
    assert verdict(kafka.bootstrap_servers, writes, 20_000) == ""


@pytest.mark.parametrize("moment", ["half", "left"])
def test_the_successor_of_a_job_killed_within_a_commit_loses_and_repeats_nothing(
    kafka: KafkaServer, tmp_path: Path, moment: str
) -> None:
    reads, writes, prefix = topic(kafka, 4, "in"), topic(kafka, 3, "out"), new_name("prefix")
    with endless(tmp_path, kafka, reads, writes, prefix) as start:
        total = 0
        process = start(2, moment)
        if moment == "left":
            fill(kafka.bootstrap_servers, reads, records(500), 4)
            total = 500
            eventually(lambda: end_offsets(kafka, writes) > 100, 30, "output")
            process.kill()
            process.wait()
            process = start(3, moment)
        while process.poll() is None:
            fill(kafka.bootstrap_servers, reads, records(200, total), 4)
            total += 200
            time.sleep(0.1)  # spread the records over several checkpoints
            assert total < 100_000
        assert process.returncode == -signal.SIGKILL
        start(1, moment)
        eventually(lambda: written(kafka, writes) >= total, 90, "the rest")
        await_checkpoints(tmp_path)
    assert verdict(kafka.bootstrap_servers, writes, total) == ""


@pytest.mark.slow
def test_brokers_that_are_unavailable_beyond_every_timeout_lose_and_repeat_nothing(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        reads, writes, prefix = topic(kafka, 4, "in"), topic(kafka, 3, "out"), new_name("prefix")
        with endless(tmp_path, kafka, reads, writes, prefix) as start:
            start()
            fill(kafka.bootstrap_servers, reads, records(3_000), 4)
            eventually(lambda: end_offsets(kafka, writes) > 100, 60, "output")
            fill(kafka.bootstrap_servers, reads, records(3_000, 3_000), 4)
            kafka.kill()
            time.sleep(70)  # beyond the patience of commits, 60 s
            kafka.restart()
            eventually(lambda: written(kafka, writes) >= 6_000, 120, "the rest")
            await_checkpoints(tmp_path)
        assert verdict(kafka.bootstrap_servers, writes, 6_000) == ""
