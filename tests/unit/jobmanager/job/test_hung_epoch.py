"""A function that does not return keeps its epoch from ending.

The job detects this by its checkpoints and fails over.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import environment, started, until


def running(folder: Path, **settings: str) -> tuple[JobMaster, InProcessRunner]:
    settings = {
        "execution.checkpointing.timeout": "1 s",
        "execution.checkpointing.interval": "50 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
        "task.cancellation.timeout": "200 ms",
        "task.cancellation.interval": "200 ms",
        **settings,
    }
    env = environment(folder, **settings)
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers")
    numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    assert isinstance(master.runner, InProcessRunner)
    return master, master.runner


def cancel(master: JobMaster) -> None:
    operation = master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED
    assert operation.wait(0)
    assert operation.failure is None


def test_a_hung_epoch_fails_over_when_its_checkpoint_expires(tmp_path: Path) -> None:
    master, runner = running(tmp_path)
    runner.hung = True
    until(lambda: master.history.restarts == 1, master)
    failure = master.history.failures[0]
    assert failure.name == "EpochFailed"
    assert "not complete after 1000 ms" in failure.message
    assert "'numbers' has not finished the epoch in slot 0" in failure.message
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    assert master.checkpoints.coordinator.history.overview()["counts"]["failed"] >= 1
    cancel(master)


def test_the_tolerated_number_of_checkpoints_expires_first(tmp_path: Path) -> None:
    master, runner = running(tmp_path, **{"execution.checkpointing.tolerable-failed-checkpoints": "2"})
    runner.hung = True
    until(lambda: master.history.restarts == 1, master)
    assert "3 checkpoints failed in a row, 2 are tolerated" in master.history.failures[0].message
    cancel(master)


@pytest.mark.parametrize("interval", ["50 ms", "0"])
def test_a_hung_epoch_is_killed_when_the_job_is_cancelled(tmp_path: Path, interval: str) -> None:
    settings = {"execution.checkpointing.interval": interval, "execution.checkpointing.timeout": "10 min"}
    master, runner = running(tmp_path, **settings)
    runner.hung = True
    cancel(master)
