"""Jobs in one JVM, on both runners, with faults and rescales. See `test_embedded`.

    python -m tests.integration.engine.embedded_jobs FOLDER

It is a separate process, because a process can have only one cluster.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.driver import Driver, configuration, environment, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import verify


def hurt_and_rescaled(executor: EmbeddedExecutor, runner: str, backend: str, folder: Path) -> None:
    settings = configuration(runner, folder.as_uri(), state__backend__type=backend)
    del settings["taskmanager.numberOfTaskSlots"]
    plan, output = Plan(per_key=1_800), f"{folder.as_uri()}/output"
    driver = start(executor, plan, output, settings).running()
    driver.hurt(driver.kill_python_worker)
    assert driver.ask("rescale", parallelism=3).result == 3
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    assert places(driver) == ["driver.0", "driver.1", "driver.2"]
    driver.finished()
    verify(plan, output)


def places(driver: Driver) -> list[str]:
    return sorted(slot.id for slot in driver.master.runner.placement)  # type: ignore[attr-defined]


def with_dataframes(executor: EmbeddedExecutor, folder: Path) -> None:
    env = environment({"rest.port": "-1", "execution.checkpointing.dir": folder.as_uri()}, 2)
    with executing_on(executor):
        numbers = env.from_collection([(n % 3, n) for n in range(30)])
        with (
            numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect() as found
        ):
            sums = dict(found)
    assert sums == {key: sum(range(key, 30, 3)) for key in range(3)}
    cluster = executor.provider.cluster
    assert cluster is not None
    frame = cluster.spark.sql.session().range(1000)
    assert frame.repartition(4).groupBy((frame.id % 2).alias("odd")).count().count() == 2
    env = environment({"rest.port": "-1", "execution.checkpointing.dir": folder.as_uri()}, 2)
    with executing_on(executor):
        rows = env.from_spark(lambda spark: spark.range(0, 1000, 1, 40))
        with rows.map(lambda row: row.id).execute_and_collect() as found:
            assert sorted(found) == list(range(1000))


def main(folder: Path) -> None:
    """Run the jobs. An AssertionError shows files that are left."""
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    executor = EmbeddedExecutor()
    executor.session.on_line = None
    try:
        for runner, backend in (("pipelined", "hashmap"), ("batched", "rocksdb")):
            hurt_and_rescaled(executor, runner, backend, folder / runner)
        with_dataframes(executor, folder / "frames")
        cluster = executor.provider.cluster
        assert cluster is not None
        [jvm] = cluster.workers.values()
        assert not cluster.spark.context.getConf().get("spark.jars"), "the JVM would copy each jar over the network"
        below = processes.descendants([jvm], themselves=True)
        assert [process.pid for process in below if "java" in process.command.split(" ", 1)[0]] == [jvm]
        assert [manager.id for manager in executor.provider.task_managers()] == ["worker-0"]
    finally:
        executor.stop()
    assert not [process for process in below if processes.is_alive(process)]
    assert list((folder / "tmp").iterdir()) == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
