"""Run a keyed job with both runners in a cluster of minimal containers. See `test_memory`.

    python -m tests.integration.engine.cluster.small_containers FOLDER

It is a separate process, because a process can have only one cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from tests.integration.engine.selfcheck.driver import environment

RECORDS = 10_000
SETTINGS = {
    "taskmanager.memory.process.size": "608mb",
    "taskmanager.numberOfTaskSlots": "2",
    "jobmanager.memory.process.size": "352mb",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "1s",
    "rest.port": "-1",
}


def run(executor: EmbeddedExecutor, runner: str, folder: Path) -> None:
    env = environment(SETTINGS | {"penstock.runner": runner, "execution.checkpointing.dir": f"file://{folder}"}, 2)
    numbers = env.from_source(DataGeneratorSource(lambda n: (n % 97, "x" * 200), RECORDS), None, "numbers")
    counts = numbers.key_by(lambda pair: pair[0]).map(lambda pair: (pair[0], 1)).key_by(lambda pair: pair[0])
    with executing_on(executor):
        found = list(counts.reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect())
    assert len(found) == RECORDS
    assert sum(dict(found).values()) == RECORDS


def main(folder: Path) -> None:
    """Run the job. An AssertionError shows the difference."""
    executor = EmbeddedExecutor()
    executor.provider.least_workers = 1
    try:
        for runner in ("pipelined", "batched"):
            run(executor, runner, folder / runner)
        cluster = executor.provider.cluster
        assert cluster is not None
        conf = cluster.spark.context.getConf()
        assert (conf.get("spark.executor.memory"), conf.get("spark.driver.memory")) == ("480m", "480m")
    finally:
        executor.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
