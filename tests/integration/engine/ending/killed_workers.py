"""Kill the workers of a cluster repeatedly, and check the files that they leave on the disk. See `test_left_behind`.

    python -m tests.integration.engine.ending.killed_workers FOLDER [DISK]

It is a separate process, because a process can have only one cluster.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from tests.in_process import environment, until

KILLS = 2


def state_folders(below: Path) -> list[Path]:
    return sorted(path for path in below.glob("**/penstock-state-*") if path.is_dir())


def start(executor: EmbeddedExecutor, folder: Path, **settings: str) -> JobMaster:
    env = environment(
        folder,
        **{
            "penstock.runner": "batched",
            "state.backend.type": "rocksdb",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
            **settings,
        },
    )
    numbers = env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers")
    numbers.key_by(lambda n: n % 10).reduce(lambda a, b: a + b).add_sink(lambda n: None)
    with executing_on(executor.session):
        env.execute_async("state")
    return executor.session.dispatcher.jobs()[-1]


def end(master: JobMaster) -> None:
    master.request(Operation("cancel"))
    assert master.wait(60).value == "CANCELED"


def main(folder: Path, disk: Path | None) -> None:
    """Run the check. An AssertionError shows files that are left."""
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    executor = EmbeddedExecutor()
    executor.provider.least_workers = 1
    try:
        master = start(executor, folder, **({"state.backend.rocksdb.localdir": str(disk)} if disk is not None else {}))
        below = disk if disk is not None else folder / "tmp"
        for _ in range(KILLS):
            attempt = master.attempt
            until(lambda: len(state_folders(below)) == 1, master)
            cluster = executor.provider.cluster
            assert cluster is not None
            for pid in cluster.workers.values():
                os.killpg(pid, signal.SIGKILL)
            until(lambda attempt=attempt: master.attempt > attempt and master.history.status.value == "RUNNING", master)
        until(lambda: len(state_folders(below)) == 1, master)
        end(master)
    finally:
        executor.stop()
    assert state_folders(folder) == []
    assert not [*(folder / "tmp").glob("penstock-cluster-*"), *(folder / "tmp").glob("penstock-driver-*")]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
