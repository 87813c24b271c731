"""What clusters leave behind on the disk: nothing after their end, also of processes that were killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.executor import executing_on
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.embedded import EmbeddedExecutor
from penstock.jobmanager.job_master import JobMaster
from penstock.jobmanager.requests import Operation
from tests.in_process import environment, until

ATTEMPTS = 4


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedExecutor]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    executor = EmbeddedExecutor()
    yield executor
    executor.stop()


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


@pytest.mark.parametrize("named", [False, True], ids=["the cluster's folder", "a folder that settings name"])
def test_state_of_killed_processes_is_swept_and_none_is_left_at_the_end(
    executor: EmbeddedExecutor, tmp_path: Path, *, named: bool
) -> None:
    disk = tmp_path / "disk"
    master = start(executor, tmp_path, **({"state.backend.rocksdb.localdir": str(disk)} if named else {}))
    below = disk if named else tmp_path / "tmp"
    for _ in range(ATTEMPTS):
        attempt = master.attempt
        until(lambda: len(state_folders(below)) == 1, master)
        cluster = executor.provider.cluster
        assert cluster is not None
        for pid in cluster.workers.values():
            os.killpg(pid, signal.SIGKILL)
        until(lambda attempt=attempt: master.attempt > attempt and master.history.status.value == "RUNNING", master)  # type: ignore[misc]
    assert len(state_folders(below)) == 1
    end(master)
    executor.stop()
    assert state_folders(tmp_path) == []
    assert not [*(tmp_path / "tmp").glob("penstock-cluster-*"), *(tmp_path / "tmp").glob("penstock-driver-*")]
