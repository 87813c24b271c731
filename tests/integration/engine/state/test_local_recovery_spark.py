"""RocksDB's files come from the TaskManager's disk after its processes were killed, and from storage if they are missing.

These tests use real Spark processes. `test_local_recovery` tests copies with wrong content.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.common.job_status import JobStatus
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from tests.integration.engine.selfcheck.driver import PATIENCE_S, Driver, start
from tests.integration.engine.selfcheck.job import Plan
from tests.integration.engine.selfcheck.output import read, verify
from tests.integration.engine.state.test_local_recovery import damage_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENDLESS = Plan(per_key=1_000_000, rate=500.0)
KILLS: dict[str, Callable[[Driver], object]] = {
    "python-worker": Driver.kill_python_worker,
    "executor": Driver.kill_executor,
    "task-manager": Driver.kill_worker,
}


@pytest.fixture
def driver(executor: EmbeddedExecutor, settings: dict[str, str], output: str) -> Driver:
    rocksdb = {"state.backend.type": "rocksdb", "execution.checkpointing.file-merging.enabled": "false"}
    return start(executor, ENDLESS, output, {**settings, **rocksdb}).running()


def recover(driver: Driver, kill: Callable[[Driver], object]) -> None:
    attempt = driver.master.attempt
    kill(driver)
    driver.wait_for(
        lambda: driver.master.attempt > attempt and driver.master.history.status is JobStatus.RUNNING, "it recovered"
    )


def go_on(driver: Driver, output: str) -> None:
    """Wait for more output, and check that all of it is exactly once."""
    before = len(read(f"{output}/numbers"))
    driver.wait_for(lambda: len(read(f"{output}/numbers")) > before, "more output")
    driver.ask("cancel")
    assert driver.master.wait(PATIENCE_S) is JobStatus.CANCELED
    verify(ENDLESS, output, complete=False)


@pytest.mark.parametrize("kill", KILLS)
def test_the_state_of_killed_processes_comes_from_their_disk(
    kill: str, driver: Driver, output: str, tmp_path: Path
) -> None:
    for _ in range(2):
        assert damage_storage(tmp_path), "storage has no table to damage"
        recover(driver, KILLS[kill])
        driver.running()
    go_on(driver, output)


def test_the_state_comes_from_storage_if_the_disk_is_gone(driver: Driver, output: str) -> None:
    cluster = driver.executor.provider.cluster
    assert isinstance(cluster, LocalCluster)
    copies = Path(cluster.state_dir, f"penstock-local-{driver.master.job_id}")
    assert list(copies.iterdir())
    shutil.rmtree(copies)
    recover(driver, Driver.kill_executor)
    go_on(driver, output)
