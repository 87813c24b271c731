"""JVMs with the least heap that the memory model gives: Spark takes it, and a keyed job runs with it and with bounded RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.common.executor import executing_on
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.embedded import EmbeddedExecutor
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("runner", ["pipelined", "batched"])
def test_a_job_runs_in_containers_that_are_just_large_enough(runner: str, tmp_path: Path) -> None:
    executor = EmbeddedExecutor()
    settings = {
        "penstock.runner": runner,
        "taskmanager.memory.process.size": "1032mb",
        "taskmanager.numberOfTaskSlots": "2",
        "jobmanager.memory.process.size": "352mb",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.dir": f"file://{tmp_path}",
        "rest.port": "-1",
    }
    try:
        env = environment(settings, 2)
        numbers = env.from_source(DataGeneratorSource(lambda n: (n % 97, "x" * 200), 50_000), None, "numbers")
        counts = numbers.key_by(lambda pair: pair[0]).map(lambda pair: (pair[0], 1)).key_by(lambda pair: pair[0])
        with executing_on(executor):
            found = list(counts.reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect())
        assert len(found) == 50_000
        assert sum(dict(found).values()) == 50_000
        conf = executor.provider.cluster.spark.context.getConf() if executor.provider.cluster is not None else None
        assert conf is not None
        assert (conf.get("spark.executor.memory"), conf.get("spark.driver.memory")) == ("480m", "480m")
    finally:
        executor.stop()
