"""A job that starts on standby waits until it is released with the location of its state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.release import ReleaseRecord, read_release, release
from penstock.common.errors import JobSuspended, StorageError
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.starting.start_steps import WAITING_FOR_RELEASE
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment, until

FIRST, SECOND = "1" * 32, "2" * 32


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    made: list[Session] = []
    yield made
    for session in made:
        session.stop()


def start(sessions: list[Session], folder: Path, options: SubmitOptions) -> JobMaster:
    """Start a job and return its JobMaster, whether or not the job is accepted."""
    session = Session(InProcess(), options)
    sessions.append(session)
    found: list[JobMaster] = []
    started = threading.Event()

    def on_started(master: JobMaster) -> None:
        found.append(master)
        started.set()

    session.on_started = on_started
    env = environment(folder, **{"restart-strategy.type": "none"})
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").map(lambda n: n).print()

    def run() -> None:
        with executing_on(session), contextlib.suppress(JobSuspended):
            env.execute_async("job")

    threading.Thread(target=run, daemon=True).start()
    assert started.wait(30)
    return found[0]


def stopped(sessions: list[Session], folder: Path) -> str:
    """Stop a job and return the path of its savepoint."""
    master = start(sessions, folder, SubmitOptions(job_id=FIRST, keep_result=True))
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    operation = master.request(Operation("stop", {"directory": f"file://{folder}/savepoints"}))
    operation.wait(30)
    assert master.wait(30) is JobStatus.FINISHED
    assert operation.location
    return operation.location


def waiting(sessions: list[Session], folder: Path) -> JobMaster:
    master = start(sessions, folder, SubmitOptions(job_id=SECOND, awaits_release=True, keep_result=True))
    until(lambda: master.parts.steps.step == WAITING_FOR_RELEASE, master)
    return master


def test_a_standby_job_writes_nothing_until_it_is_released_and_restores_that_state(
    sessions: list[Session], tmp_path: Path
) -> None:
    savepoint = stopped(sessions, tmp_path)
    master = waiting(sessions, tmp_path)
    assert master.history.status is JobStatus.INITIALIZING
    assert master.checkpoints.storage.list_objects() == []
    release(master.checkpoints.storage, ReleaseRecord(savepoint))
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    assert any(savepoint in event.text for event in master.history.events)


def test_a_job_that_was_released_before_does_not_wait_again(sessions: list[Session], tmp_path: Path) -> None:
    savepoint = stopped(sessions, tmp_path)
    storage = waiting(sessions, tmp_path).checkpoints.storage
    sessions[-1].dispatcher.jobs()[0].suspend()
    release(storage, ReleaseRecord(savepoint))
    again = start(sessions, tmp_path, SubmitOptions(job_id=SECOND, awaits_release=True, keep_result=True))
    until(lambda: again.history.status is JobStatus.RUNNING, again)


def test_a_standby_job_ends_when_its_process_shuts_down(sessions: list[Session], tmp_path: Path) -> None:
    master = waiting(sessions, tmp_path)
    master.suspend()
    assert master.wait(30) is JobStatus.SUSPENDED
    assert master.checkpoints.storage.list_objects() == []


def test_storage_that_does_not_answer_is_not_a_release(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoint = stopped(sessions, tmp_path)
    master = waiting(sessions, tmp_path)
    requested = threading.Event()

    def silent() -> bool:
        requested.set()
        raise StorageError("503 SlowDown")

    with monkeypatch.context() as patch:
        patch.setattr(master.checkpoints, "is_released", silent)
        release(master.checkpoints.storage, ReleaseRecord(savepoint))
        assert requested.wait(10)
        assert master.parts.steps.step == WAITING_FOR_RELEASE
    until(lambda: master.history.status is JobStatus.RUNNING, master)


def test_the_first_release_counts(tmp_path: Path) -> None:
    storage = CheckpointStorage(f"file://{tmp_path}", FIRST)
    release(storage, ReleaseRecord("s3://b/one"))
    with pytest.raises(StorageError, match="released before, from s3://b/one"):
        release(storage, ReleaseRecord("s3://b/two"))
    assert read_release(storage) == ReleaseRecord("s3://b/one")
