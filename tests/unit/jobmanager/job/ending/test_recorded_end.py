"""The end of a job is recorded before it is announced. A superseded JobManager records nothing, and an ended job never runs again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.fencing import list_leader_folder
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.local_store import TEMPORARY_SUFFIX, LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy
from penstock.common.errors import Fenced, RestoreRefused
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.ending.job_result import (
    ResultRecord,
    read_result,
    retry_in_background,
    store_and_wait,
    store_result,
)
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.starting.start_steps import WAITING, WAITING_TO_LEAD
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment, until

JOB = "1" * 32
SECRET = "s3cr3t-s3cr3t-s3cr3t"


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    made: list[Session] = []
    yield made
    for session in made:
        session.stop()


def start(
    sessions: list[Session],
    folder: Path,
    function: Callable[[int], int] = lambda n: n,
    leads: threading.Event | None = None,
    *,
    elected: bool = True,
    slots: int = 64,
    confirm: Callable[[float, float | None], bool] = lambda timeout_s, since_s: True,
    retention: str = "RETAIN_ON_CANCELLATION",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> JobMaster:
    """Start a master's job. It waits until `leads` is set; None means that it leads at once."""
    session = Session(InProcess(slots), SubmitOptions(job_id=JOB, keep_result=True))
    session.confirms_lead = confirm
    if elected:
        session.waits_to_lead = (lambda seconds: True) if leads is None else leads.wait
    sessions.append(session)
    found: list[JobMaster] = []
    started = threading.Event()

    def on_started(master: JobMaster) -> None:
        found.append(master)
        started.set()

    session.on_started = on_started
    kept = {"execution.checkpointing.externalized-checkpoint-retention": retention}
    env = environment(folder, **{"restart-strategy.type": "none", **kept, **settings})
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").map(function).print()

    def run() -> None:
        with executing_on(session), contextlib.suppress(Exception):
            env.execute_async("job")

    threading.Thread(target=run, daemon=True).start()
    assert started.wait(30)
    return found[0]


def running(sessions: list[Session], folder: Path, **options: Any) -> JobMaster:
    master = start(sessions, folder, **options)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    return master


def fail(value: int) -> int:
    if value > 5:
        raise ValueError("broken")
    return value


def test_a_standby_touches_nothing_until_it_leads(sessions: list[Session], tmp_path: Path) -> None:
    leads = threading.Event()
    master = start(sessions, tmp_path, leads=leads)
    until(lambda: master.parts.steps.step == WAITING_TO_LEAD, master)
    assert master.checkpoints.storage.list_objects() == []
    leads.set()
    until(lambda: master.history.status is JobStatus.RUNNING, master)


def test_a_standby_does_not_run_a_job_that_failed_under_the_leader(sessions: list[Session], tmp_path: Path) -> None:
    leads = threading.Event()
    standby = start(sessions, tmp_path, fail, leads)
    leader = start(sessions, tmp_path, fail)
    assert leader.wait(30) is JobStatus.FAILED
    result = read_result(leader.checkpoints.storage)
    assert result is not None
    assert result.status is JobStatus.FAILED
    assert "broken" in result.failure
    leads.set()
    assert standby.wait(30) is JobStatus.FAILED
    assert standby.attempt == 0
    assert isinstance(standby.error, RestoreRefused)
    assert "broken" in standby.error.message
    assert "another id" in standby.error.remedy


def test_a_failure_of_a_job_without_an_election_is_not_final(sessions: list[Session], tmp_path: Path) -> None:
    master = start(sessions, tmp_path, fail, elected=False)
    assert master.wait(30) is JobStatus.FAILED
    assert read_result(master.checkpoints.storage) is None


def test_a_leader_that_is_superseded_while_its_job_fails_is_suspended_and_the_job_runs_on(
    sessions: list[Session], tmp_path: Path
) -> None:
    seen, go_on = tmp_path / "seen", tmp_path / "go_on"

    def fail_when_superseded(value: int) -> int:
        if value > 5:
            seen.touch()
            while not go_on.exists():
                time.sleep(0.01)
            raise ValueError("broken")
        return value

    old = start(sessions, tmp_path, fail_when_superseded)
    until(seen.exists, old)
    new = running(sessions, tmp_path)
    go_on.touch()
    assert old.wait(30) is JobStatus.SUSPENDED
    assert isinstance(old.error, Fenced)
    assert read_result(new.checkpoints.storage) is None
    assert new.history.status is JobStatus.RUNNING


WITHOUT_SLOTS: dict[str, Any] = {"slots": 0, "settings": {"slot.request.timeout": "1500 ms"}}
"""Arguments of a job that waits for slots, and then fails."""


@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_frozen_leader_that_fails_before_its_first_attempt_does_not_end_the_job_of_the_next_leader(
    sessions: list[Session], tmp_path: Path, has_checkpoints: bool
) -> None:
    if has_checkpoints:
        earlier = running(sessions, tmp_path)
        until(lambda: bool(earlier.checkpoints.storage.checkpoint_ids()), earlier)
        earlier.suspend()
        assert earlier.wait(30) is JobStatus.SUSPENDED
    old = start(sessions, tmp_path, **WITHOUT_SLOTS)
    until(lambda: old.parts.steps.step == WAITING, old)
    new = running(sessions, tmp_path)
    assert old.wait(30) is JobStatus.SUSPENDED
    assert isinstance(old.error, Fenced)
    assert read_result(new.checkpoints.storage) is None
    new.suspend()
    assert new.wait(30) is JobStatus.SUSPENDED
    assert running(sessions, tmp_path).attempt > new.attempt


def test_a_leader_whose_job_fails_before_its_first_attempt_records_the_failure(
    sessions: list[Session], tmp_path: Path
) -> None:
    for _ in range(2):
        old = start(sessions, tmp_path, **WITHOUT_SLOTS)
        assert old.wait(30) is JobStatus.FAILED
        assert old.attempt == 0
        result = read_result(old.checkpoints.storage)
        assert result is not None
        assert result.status is JobStatus.FAILED
        assert "needs 1 slots" in result.failure


def test_a_failure_before_the_first_attempt_waits_until_the_election_confirms_the_leadership(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may have been frozen between its election and its first listing of the leader epochs."""
    monkeypatch.setattr("penstock.jobmanager.job.ending.job_end.store_and_wait", partial(store_and_wait, pause_s=0.01))
    responds = threading.Event()
    confirmed_since: list[float | None] = []

    def confirm(timeout_s: float, since_s: float | None) -> bool:
        confirmed_since.append(since_s)
        return responds.is_set()

    master = start(sessions, tmp_path, confirm=confirm, **WITHOUT_SLOTS)
    began = time.monotonic()
    while len(confirmed_since) < 3:
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    assert not master.is_done
    assert read_result(master.checkpoints.storage) is None
    assert None not in confirmed_since
    responds.set()
    assert master.wait(30) is JobStatus.FAILED


@pytest.mark.parametrize("is_superseded", [True, False])
def test_a_leader_that_is_cut_off_from_the_election_does_not_fence_the_next_leader(
    sessions: list[Session], tmp_path: Path, is_superseded: bool
) -> None:
    """It leads and waits for slots, and another master has claimed a leader epoch before its first attempt."""
    is_confirming, go_on = threading.Event(), threading.Event()

    def confirm(timeout_s: float, since_s: float | None) -> bool:
        is_confirming.set()
        go_on.wait(30)
        return False

    old = start(sessions, tmp_path, confirm=confirm)
    assert is_confirming.wait(30)
    if not is_superseded:
        go_on.set()
        until(lambda: old.history.status is JobStatus.RUNNING, old)
        return
    new = running(sessions, tmp_path)
    go_on.set()
    assert old.wait(30) is JobStatus.SUSPENDED
    assert isinstance(old.error, Fenced)
    completed = len(new.checkpoints.storage.checkpoint_ids())
    until(lambda: max(new.checkpoints.storage.checkpoint_ids(), default=0) > completed + 1, new)
    assert new.history.status is JobStatus.RUNNING


def test_each_attempt_of_an_elected_leader_begins_with_a_confirmed_leadership(
    sessions: list[Session], tmp_path: Path
) -> None:
    epochs: list[int] = []
    storage = CheckpointStorage(f"file://{tmp_path}/checkpoints", JOB)

    def confirm(timeout_s: float, since_s: float | None) -> bool:
        epochs.append(list_leader_folder(storage).highest_claim)
        return True

    master = running(sessions, tmp_path, confirm=confirm)
    assert epochs == [0]
    master.request(Operation("rescale", {"parallelism": 2}))
    until(lambda: master.parallelism == 2 and master.history.status is JobStatus.RUNNING, master)
    assert epochs == [0, 1]


def test_an_end_counts_after_the_checkpoints_are_deleted(sessions: list[Session], tmp_path: Path) -> None:
    """The deletion begins one more leader epoch, which must not make the record void."""
    master = running(sessions, tmp_path, retention="NO_EXTERNALIZED_CHECKPOINTS")
    until(lambda: bool(master.checkpoints.storage.checkpoint_ids()), master)
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED
    assert master.checkpoints.storage.checkpoint_ids() == []
    again = start(sessions, tmp_path)
    assert again.wait(30) is JobStatus.CANCELED
    assert again.attempt == 0


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED])
def test_a_late_record_of_a_superseded_leader_does_not_end_the_job(
    sessions: list[Session], tmp_path: Path, status: JobStatus
) -> None:
    master = running(sessions, tmp_path)
    storage = master.checkpoints.storage
    store_result(storage, ResultRecord(status, 1, epoch=master.attempt - 1 or -1))
    assert read_result(storage) is None
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED
    result = read_result(storage)
    assert result is not None
    assert (result.status, result.epoch) == (JobStatus.CANCELED, master.attempt)
    again = start(sessions, tmp_path)
    assert again.wait(30) is JobStatus.CANCELED
    assert again.attempt == 0


def test_an_end_that_was_recorded_between_the_check_and_the_claim_of_the_next_leader_counts(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = CheckpointStorage(f"file://{tmp_path}/checkpoints", JOB)
    old = take_over(storage, name="old")
    old.begin()

    def claims_late(*args: Any, **named: Any) -> Any:
        store_result(storage, ResultRecord(JobStatus.FINISHED, 1, epoch=old.epoch))
        return take_over(*args, **named)

    monkeypatch.setattr("penstock.jobmanager.job.checkpoints.take_over", claims_late)
    master = start(sessions, tmp_path)
    assert master.wait(30) is JobStatus.FINISHED, master.error
    assert master.attempt == 0
    result = read_result(storage)
    assert result is not None
    assert result.epoch == old.epoch


def test_an_end_is_announced_only_after_it_is_recorded(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.jobmanager.job.ending.job_end.store_and_wait", partial(store_and_wait, pause_s=0.01))
    master = running(sessions, tmp_path)
    faulty = FaultyStore(LocalStore())
    policy = RetryPolicy(retry_for=0.1, pause=0.01)
    master.checkpoints.storage.stores.use("file", RetryingStore(faulty, policy))
    faulty.inject("put", Fault.TIMEOUT_BEFORE, match="/result", times=10**9)
    operation = master.request(Operation("cancel"))
    time.sleep(1.5)
    assert not master.is_done
    assert not operation.is_done
    assert master.history.status is not JobStatus.CANCELED
    faulty.heal()
    assert master.wait(30) is JobStatus.CANCELED
    result = read_result(master.checkpoints.storage)
    assert result is not None
    assert result.status is JobStatus.CANCELED


def test_a_superseded_master_does_not_retry_the_record_of_its_end() -> None:
    calls: list[int] = []
    ended = threading.Event()

    def end() -> None:
        calls.append(1)
        ended.set()
        raise Fenced("superseded", remedy="none")

    retry_in_background(end, first_pause_s=0.01, longest_pause_s=0.01)
    assert ended.wait(10)
    time.sleep(0.3)
    assert len(calls) == 1


def test_an_incomplete_file_beside_the_records_does_not_prevent_a_start(tmp_path: Path) -> None:
    storage = CheckpointStorage(f"file://{tmp_path}", JOB)
    for _ in range(2):
        take_over(storage).begin()
    store_result(storage, ResultRecord(JobStatus.FINISHED, 7, epoch=1, candidate="superseded"))
    storage.put(f"results/2.{'0' * 32}{TEMPORARY_SUFFIX}", b"")
    assert read_result(storage) is None
    store_result(storage, ResultRecord(JobStatus.CANCELED, 8, epoch=2))
    result = read_result(storage)
    assert result is not None
    assert result.status is JobStatus.CANCELED


def leak(value: int) -> int:
    raise ValueError(f"login with {SECRET} was refused")


def test_a_recorded_failure_has_no_secret_of_the_configuration(sessions: list[Session], tmp_path: Path) -> None:
    master = start(sessions, tmp_path, leak, settings={"s3.secret-key": SECRET})
    assert master.wait(30) is JobStatus.FAILED
    result = read_result(master.checkpoints.storage)
    assert result is not None
    assert "was refused" in result.failure
    assert SECRET not in result.failure


def test_a_stored_answer_has_no_secret_of_the_configuration(sessions: list[Session], tmp_path: Path) -> None:
    master = running(sessions, tmp_path, settings={"s3.secret-key": SECRET})
    request = Operation("savepoint", {"job": JOB}, id="a" * 32)
    sessions[-1].dispatcher.journals[JOB].accept(request, master)
    request.fail(f"login with {SECRET} was refused")
    stored = master.checkpoints.storage.read(f"requests/{request.id}.answer").decode()
    assert "was refused" in stored
    assert SECRET not in stored
