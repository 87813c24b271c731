"""Kafka -> keyed state -> Kafka: each record exactly once under faults. Readers see only committed messages."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, run, started, until
from tests.integration.kafka.running import end_offsets, endless, written
from tests.integration.kafka.support import (
    CountPerKey,
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


class FailsNowAndThen:
    """A map function that raises several times, each time after a number of records."""

    count = 0
    failures = 0

    def __init__(self, every: int, times: int) -> None:
        self.every, self.times = every, times

    def __call__(self, record: Any) -> Any:
        kind = FailsNowAndThen
        kind.count += 1
        if kind.failures < self.times and kind.count >= self.every * (kind.failures + 1):
            kind.failures += 1
            raise RuntimeError("as ordered")
        return record


def test_failures_of_functions_lose_and_repeat_nothing(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 4, "in"), topic(kafka, 3, "out")
    fill(kafka.bootstrap_servers, reads, records(30_000), 4)
    FailsNowAndThen.count = FailsNowAndThen.failures = 0
    settings = {"type": "fixed-delay", "fixed-delay.delay": "50 ms", "fixed-delay.attempts": "100"}
    env = environment(tmp_path, **{f"restart-strategy.{name}": value for name, value in settings.items()})
    env.set_parallelism(2)
    bounded = source(kafka.bootstrap_servers, reads).set_bounded(KafkaOffsetsInitializer.latest()).build()
    stream = env.from_source(bounded, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream = stream.map(FailsNowAndThen(8_000, 3)).uid("fails")
    counted = stream.key_by(lambda record: record["key"]).process(CountPerKey()).uid("count")
    counted.sink_to(sink(kafka.bootstrap_servers, writes).build()).uid("out")
    master = run(env)
    assert FailsNowAndThen.failures == 3
    assert master.history.status.value == "FINISHED"
    assert verdict(kafka.bootstrap_servers, writes, 30_000) == ""


def test_a_killed_job_loses_and_repeats_nothing_at_any_parallelism(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        reads, writes, prefix = topic(kafka, 4, "in"), topic(kafka, 3, "out"), new_name("prefix")
        chance = random.Random(7)
        with endless(tmp_path, kafka, reads, writes, prefix) as start:
            total = 0
            for parallelism in (2, 3, 1, 2):
                process = start(parallelism)
                before = end_offsets(kafka, writes)
                fill(kafka.bootstrap_servers, reads, records(3_000, total), 4)
                total += 3_000
                eventually(lambda before=before: end_offsets(kafka, writes) > before + 100, 30, "output")
                assert process.poll() is None
                time.sleep(chance.random())  # kill the job at a random moment of its checkpoints
                process.send_signal(signal.SIGKILL)
                process.wait()
            start(2)
            eventually(lambda: written(kafka, writes) >= total, 90, "the rest")
            await_checkpoints(tmp_path)
        assert verdict(kafka.bootstrap_servers, writes, total) == ""


@pytest.mark.parametrize("moment", ["before", "half", "after", "left"])
def test_a_job_killed_at_any_moment_of_a_commit_is_committed_by_its_successor(
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


def test_a_killed_or_paused_broker_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        reads, writes, prefix = topic(kafka, 4, "in"), topic(kafka, 3, "out"), new_name("prefix")
        with endless(tmp_path, kafka, reads, writes, prefix) as start:
            start()
            total = 0
            for fault in ("kill", "pause", "kill"):
                before = end_offsets(kafka, writes)
                fill(kafka.bootstrap_servers, reads, records(3_000, total), 4)
                total += 3_000
                eventually(lambda before=before: end_offsets(kafka, writes) > before + 100, 60, "output")
                fill(kafka.bootstrap_servers, reads, records(3_000, total), 4)
                total += 3_000
                if fault == "kill":
                    kafka.kill()
                    kafka.restart()
                else:
                    kafka.pause()
                    time.sleep(5)  # the duration of the pause
                    kafka.resume()
            eventually(lambda: written(kafka, writes) >= total, 120, "the rest")
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


def test_a_rescale_moves_partitions_without_a_gap(kafka: KafkaServer, tmp_path: Path) -> None:
    reads, writes = topic(kafka, 4, "in"), topic(kafka, 3, "out")
    env = environment(tmp_path)
    env.set_parallelism(1)
    env.set_max_parallelism(8)
    counting(env, source(kafka.bootstrap_servers, reads).build(), sink(kafka.bootstrap_servers, writes).build())
    master = started(env)
    total = 0
    for parallelism in (3, 2, 4):
        fill(kafka.bootstrap_servers, reads, records(2_000, total), 4)
        total += 2_000
        until(lambda wanted=total: written(kafka, writes) >= wanted - 1_500, master)
        master.request(Operation("rescale", {"parallelism": parallelism}))
    fill(kafka.bootstrap_servers, reads, records(1_000, total), 4)
    total += 1_000
    until(lambda: written(kafka, writes) >= total, master)
    master.request(Operation("cancel"))
    master.wait(30)
    assert verdict(kafka.bootstrap_servers, writes, total) == ""
