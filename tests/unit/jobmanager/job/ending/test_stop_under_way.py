"""A job whose stop waits for its savepoint shows this and still answers requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.store.faults import BlockedCall, FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.job import checkpoints
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until


@pytest.fixture
def copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[JobMaster, Operation, BlockedCall]]:
    """Start a job whose stop hangs in the copy of its savepoint. The parameter is the timeout of its checkpoints."""
    monkeypatch.setattr(checkpoints, "CLOSE_PATIENCE_S", 0.5)
    env = environment(tmp_path, **{"execution.checkpointing.timeout": getattr(request, "param", "60 s")})
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers")
    numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    faulty = FaultyStore(LocalStore(fsync=False))
    master.checkpoints.storage.stores.use("file", RetryingStore(faulty))
    with faulty.blocked("put", match="/savepoints/") as blocked:
        stop = master.request(Operation("stop"))
        blocked.wait_until_reached(30)
        yield master, stop, blocked
    if not master.is_done:
        master.request(Operation("cancel"))
    assert master.wait(30).is_terminal_state()


def test_the_job_shows_that_it_waits(copying: tuple[JobMaster, Operation, BlockedCall]) -> None:
    master, stop, blocked = copying
    until(lambda: master.end_step == "stop: copying the savepoint", master)
    blocked.release()
    assert master.wait(30) is JobStatus.FINISHED
    assert stop.failure is None
    assert stop.location


@pytest.mark.parametrize(("kind", "status"), [("cancel", JobStatus.CANCELED), ("suspend", JobStatus.SUSPENDED)])
def test_the_job_can_be_left(copying: tuple[JobMaster, Operation, BlockedCall], kind: str, status: JobStatus) -> None:
    master, stop, _ = copying
    leave = master.request(Operation(kind))
    assert master.wait(20) is status
    assert leave.wait(20)
    assert leave.failure is None
    assert stop.failure is not None
    assert "before the operation was complete" in stop.failure


@pytest.mark.parametrize("copying", ["5 s"], indirect=True)
def test_the_copy_has_a_timeout(copying: tuple[JobMaster, Operation, BlockedCall]) -> None:
    master, stop, _ = copying
    assert stop.wait(30)
    assert stop.failure is not None
    assert "is not copied" in stop.failure
    until(lambda: master.history.status is JobStatus.RUNNING and not master.end_step, master)
    assert master.request(Operation("checkpoint")).wait(30)
