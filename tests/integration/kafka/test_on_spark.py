"""Kafka -> keyed state -> Kafka in Spark's Python workers, each record exactly once.

A worker and an executor are killed. The job is rescaled, stopped with a savepoint, restored from it and drained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.process.session.session import SubmitOptions
from tests.integration.engine.selfcheck.driver import Driver, configuration, environment, submitted
from tests.integration.kafka.support import counting, fill, new_name, read, records, sink, source, topic, verdict

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
    from tools.servers.kafka import KafkaServer

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PART = 2_000


class KafkaJob:
    """The job on a cluster, its input, and its committed output."""

    def __init__(self, kafka: KafkaServer, executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
        self.servers = kafka.bootstrap_servers
        self.reads, self.writes = topic(kafka, 4, "in"), topic(kafka, 3, "out")
        self.total = 0
        self._prefix = new_name("prefix")
        self._executor = executor
        self._settings = settings

    def start(self, parallelism: int, restore: str = "") -> Driver:
        env = environment(self._settings, parallelism)
        reads = source(self.servers, self.reads).set_group_id("spark").build()
        counting(env, reads, sink(self.servers, self.writes, prefix=self._prefix).build())
        return submitted(self._executor, env, "kafka", SubmitOptions(restore_path=restore))

    @property
    def committed(self) -> int:
        return len(read(self.servers, self.writes))

    def more(self, driver: Driver) -> None:
        """Write some records. The last ones may still be in flight when this returns."""
        before = self.committed
        self._fill()
        driver.wait_for(lambda: self.committed > before, "output was committed")
        self._fill()

    def _fill(self) -> None:
        fill(self.servers, self.reads, records(PART, self.total), 4)
        self.total += PART


def test_killed_workers_a_rescale_and_a_restored_savepoint_lose_and_repeat_nothing(
    kafka: KafkaServer, executor: EmbeddedExecutor, runner: str, tmp_path: Path
) -> None:
    job = KafkaJob(kafka, executor, configuration(runner, tmp_path.as_uri()))
    driver = job.start(2)
    job.more(driver)
    driver.hurt(driver.kill_python_worker)
    job.more(driver)
    assert driver.ask("rescale", parallelism=1).result == 1
    job.more(driver)
    driver.hurt(driver.kill_executor)
    job.more(driver)
    savepoint = driver.ask("stop").location
    assert savepoint is not None
    driver.finished()
    restored = job.start(2, savepoint)
    job.more(restored)
    restored.wait_for(lambda: job.committed >= job.total, "all was written")
    restored.ask("stop", drain=True)
    restored.finished()
    assert verdict(job.servers, job.writes, job.total) == ""
