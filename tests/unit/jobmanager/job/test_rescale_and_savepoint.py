"""A rescale ends the attempt and any savepoint in progress, so the two must not overlap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until

OPEN = threading.Event()
BLOCKED = threading.Event()


def through_the_gate(value: int) -> int:
    if not OPEN.is_set():
        BLOCKED.set()
        assert OPEN.wait(30)
    return value


def running(folder: Path, **settings: str) -> JobMaster:
    OPEN.set()
    env = environment(folder, **settings).set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers").map(through_the_gate)
    numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    return master


@pytest.fixture
def master(tmp_path: Path) -> Iterator[JobMaster]:
    master = running(tmp_path)
    yield master
    OPEN.set()
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED


def at_one_barrier(master: JobMaster, *operations: Operation) -> None:
    """Make all of these requests during one epoch."""
    OPEN.clear()
    BLOCKED.clear()
    assert BLOCKED.wait(30)
    for operation in operations:
        master.request(operation)
    OPEN.set()
    for operation in operations:
        assert operation.wait(30), operation.kind


@pytest.mark.parametrize("kinds", [("savepoint", "rescale"), ("rescale", "savepoint"), ("rescale", "checkpoint")])
def test_a_rescale_and_a_savepoint_run_one_after_the_other(master: JobMaster, kinds: tuple[str, str]) -> None:
    operations = [Operation(kind, {"parallelism": 3} if kind == "rescale" else {}) for kind in kinds]
    at_one_barrier(master, *operations)
    assert [operation.failure for operation in operations] == [None, None]
    assert master.parallelism == 3
    for operation in operations:
        if operation.kind == "savepoint":
            assert operation.location is not None
            assert (Path(operation.location.removeprefix("file://")) / "_metadata").exists()


def test_a_waiting_rescale_can_be_refused_immediately(master: JobMaster) -> None:
    savepoint, rescale = Operation("savepoint"), Operation("rescale", {"parallelism": 1_000})
    at_one_barrier(master, savepoint, rescale)
    assert savepoint.failure is None
    assert rescale.failure is not None
    assert "max parallelism" in rescale.failure


def test_waiting_requests_are_answered_when_the_job_ends(master: JobMaster) -> None:
    rescale, savepoint = Operation("rescale", {"parallelism": 3}), Operation("savepoint")
    at_one_barrier(master, rescale, savepoint, Operation("cancel"))
    assert savepoint.failure == "the job ended as CANCELED"
    assert rescale.failure == "the job was cancelled before the operation was complete"


def test_a_checkpoint_that_is_due_immediately_does_not_rescale_again(tmp_path: Path) -> None:
    master = running(tmp_path, **{"execution.checkpointing.interval": "1 ms"})
    attempt = master.attempt
    rescale = master.request(Operation("rescale", {"parallelism": 3}))
    assert rescale.wait(30)
    assert rescale.failure is None
    assert master.attempt == attempt + 1
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED
