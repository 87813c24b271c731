"""Requests to a leader that is lost: the next leader executes and answers them, under the same ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.leadership.fencing import list_leader_folder
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.local_store import TEMPORARY_SUFFIX, LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob, StorageError
from penstock.common.job_status import JobStatus
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.scheduler import JobScheduler
from penstock.jobmanager.process.session import request_journal
from penstock.jobmanager.process.session.request_journal import FOLDER, KEPT, RequestJournal
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, until
from tests.unit.jobmanager.job.ending.test_recorded_end import JOB, running, start


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    made: list[Session] = []
    yield made
    for session in made:
        session.stop()


def accept(folder: Path, operation: Operation) -> None:
    """Store a request as a leader does that is killed before it executes the request."""
    storage = CheckpointStorage(f"file://{folder}/checkpoints", JOB)
    master = type("Lost", (), {})()
    journal = RequestJournal(storage)
    journal.load(master)
    journal.accept(operation, master)
    operation.before_done = lambda found: None


def of(sessions: list[Session], request_id: str) -> Operation:
    """Return the request as the newest session's REST API finds it."""
    deadline = time.monotonic() + 30
    while (found := sessions[-1].dispatcher.operation(request_id)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_the_next_leader_takes_a_requested_savepoint_under_the_same_id(sessions: list[Session], tmp_path: Path) -> None:
    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
    accept(tmp_path, request)
    master = running(sessions, tmp_path)
    found = of(sessions, request.id)
    assert found.wait(30)
    assert found.failure is None
    assert found.location is not None
    assert Path(found.location.removeprefix("file://"), "_metadata").is_file()
    assert master.history.status is JobStatus.RUNNING


def test_the_answer_of_a_request_survives_its_leader(sessions: list[Session], tmp_path: Path) -> None:
    first = running(sessions, tmp_path)
    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB})
    sessions[-1].dispatcher.request(first, request)
    assert request.wait(30)
    first.suspend()
    assert first.wait(30) is JobStatus.SUSPENDED
    running(sessions, tmp_path)
    found = of(sessions, request.id)
    assert found.is_done
    assert found.location == request.location


def test_a_request_that_a_client_repeats_while_it_is_stored_is_executed_once(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = running(sessions, tmp_path)
    accept_at_once = RequestJournal.accept

    def accept_slowly(journal: RequestJournal, operation: Operation, master: JobMaster) -> None:
        time.sleep(0.3)
        accept_at_once(journal, operation, master)

    def request() -> Operation:
        operation = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
        return sessions[-1].dispatcher.request(master, operation)

    monkeypatch.setattr(RequestJournal, "accept", accept_slowly)
    with ThreadPoolExecutor(3) as clients:
        first, *others = [answer.result() for answer in [clients.submit(request) for _ in range(3)]]
    assert all(other is first for other in others)
    assert first.wait(30)
    assert first.failure is None
    assert len(list((tmp_path / "sp").iterdir())) == 1
    assert (master.history.status, master.history.restarts) == (JobStatus.RUNNING, 0)


def test_a_repeated_request_is_executed_if_storage_did_not_respond_to_the_first_one(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = running(sessions, tmp_path)

    def refuse(journal: RequestJournal, operation: Operation, master: JobMaster) -> None:
        raise StorageError("no response", remedy="wait")

    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
    with monkeypatch.context() as patch:
        patch.setattr(RequestJournal, "accept", refuse)
        with pytest.raises(StorageError):
            sessions[-1].dispatcher.request(master, request)
    assert sessions[-1].dispatcher.request(master, request).wait(30)
    assert request.location


def test_a_request_that_a_suspended_leader_fails_is_executed_by_the_next_one(
    sessions: list[Session], tmp_path: Path
) -> None:
    first = running(sessions, tmp_path)
    first.suspend()
    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB})
    sessions[-1].dispatcher.request(first, request)
    assert first.wait(30) is JobStatus.SUSPENDED
    assert request.wait(30)
    assert request.failure
    running(sessions, tmp_path)
    found = of(sessions, request.id)
    assert found.wait(30)
    assert found.location, found.failure


def test_a_stop_whose_answer_was_lost_is_answered_from_the_record_of_the_end(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = running(sessions, tmp_path)
    request = Operation("stop", {"directory": f"file://{tmp_path}/sp", "job": JOB})
    with monkeypatch.context() as patch:
        patch.setattr(RequestJournal, "_storing_answer", lambda self, master: lambda operation: None)
        sessions[-1].dispatcher.request(first, request)
    assert first.wait(30) is JobStatus.FINISHED
    assert request.wait(30)
    second = start(sessions, tmp_path)
    assert second.wait(30) is JobStatus.FINISHED
    found = of(sessions, request.id)
    assert found.wait(30)
    assert found.failure is None
    assert found.location == request.location


def test_an_unanswered_cancel_ends_the_job_under_the_next_leader(sessions: list[Session], tmp_path: Path) -> None:
    request = Operation("cancel", {"job": JOB})
    accept(tmp_path, request)
    master = start(sessions, tmp_path)
    assert master.wait(60) is JobStatus.CANCELED
    assert of(sessions, request.id).failure is None


def test_a_standby_continues_with_the_parallelism_of_a_rescale_that_it_did_not_see(
    sessions: list[Session], tmp_path: Path
) -> None:
    leads = threading.Event()
    standby = start(sessions, tmp_path, leads=leads)
    until(lambda: bool(standby.parts.steps.step), standby)
    leader = running(sessions, tmp_path)
    request = Operation("rescale", {"parallelism": 3, "job": JOB})
    sessions[-1].dispatcher.request(leader, request)
    assert request.wait(30)
    assert request.failure is None
    leader.suspend()
    assert leader.wait(30) is JobStatus.SUSPENDED
    leads.set()
    until(lambda: standby.history.status is JobStatus.RUNNING, standby)
    assert standby.parallelism == 3


def test_the_parallelism_of_a_new_process_takes_precedence_over_an_earlier_rescale(
    sessions: list[Session], tmp_path: Path
) -> None:
    leader = running(sessions, tmp_path)
    before = leader.parallelism
    request = Operation("rescale", {"parallelism": before + 1, "job": JOB})
    sessions[-1].dispatcher.request(leader, request)
    assert request.wait(30)
    assert request.failure is None
    leader.suspend()
    assert leader.wait(30) is JobStatus.SUSPENDED
    assert running(sessions, tmp_path).parallelism == before


def test_a_request_that_cannot_be_stored_is_refused(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = running(sessions, tmp_path)
    journal = sessions[-1].dispatcher.journals[JOB]
    faulty = FaultyStore(LocalStore())
    faulty.inject("put", Fault.DENIED, match=f"/{FOLDER}/", times=10**9)
    journal._storage.stores.use("file", RetryingStore(faulty, RetryPolicy(retry_for=0.1)))
    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB})
    with pytest.raises(StorageError):
        sessions[-1].dispatcher.request(master, request)
    assert sessions[-1].dispatcher.operation(request.id) is None


def test_a_request_that_was_not_accepted_is_deleted_when_storage_responds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage has the request although it did not respond. The answer to the client was that the request had failed."""
    monkeypatch.setattr(request_journal, "_WITHDRAW_S", 0.05)
    storage = CheckpointStorage(f"file://{tmp_path}", JOB)
    journal = RequestJournal(storage)
    faulty = FaultyStore(LocalStore())
    faulty.inject("put", Fault.TIMEOUT_AFTER, match=f"/{FOLDER}/", times=10**9)
    faulty.inject("delete", Fault.UNAVAILABLE, match=f"/{FOLDER}/", times=10**9)
    journal._storage.stores.use("file", RetryingStore(faulty, RetryPolicy(retry_for=0.0)))
    master: JobMaster = type("Any", (), {})()
    refused, accepted = Operation("cancel", {"job": JOB}), Operation("savepoint", {"job": JOB})
    with pytest.raises(StorageError):
        journal.accept(refused, master)
    assert storage.list_names(FOLDER) == [refused.id]
    faulty.heal()
    journal.accept(accepted, master)
    deadline = time.monotonic() + 10
    while storage.list_names(FOLDER) != [accepted.id]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_refused_request_that_the_client_repeats_stays_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_journal, "_WITHDRAW_S", 0.05)
    storage = CheckpointStorage(f"file://{tmp_path}", JOB)
    journal = RequestJournal(storage)
    faulty = FaultyStore(LocalStore())
    faulty.inject("*", Fault.UNAVAILABLE, match=f"/{FOLDER}", times=10**9)
    journal._storage.stores.use("file", RetryingStore(faulty, RetryPolicy(retry_for=0.0)))
    master: JobMaster = type("Any", (), {})()
    request = Operation("cancel", {"job": JOB})
    with pytest.raises(StorageError):
        journal.accept(request, master)
    faulty.heal()
    journal.accept(request, master)
    time.sleep(0.3)
    assert storage.list_names(FOLDER) == [request.id]
    assert not journal._withdrawn


def test_the_number_of_stored_requests_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_journal, "KEPT", 5)
    assert KEPT > 5
    storage = CheckpointStorage(f"file://{tmp_path}", JOB)
    journal = RequestJournal(storage)
    master: JobMaster = type("Any", (), {})()
    for _ in range(12):
        operation = Operation("checkpoint")
        journal.accept(operation, master)
        operation.complete(result=1)
    assert len([name for name in storage.list_names(FOLDER) if "." not in name]) <= 6


@pytest.mark.parametrize("method", ["note_earlier", "load"])
def test_a_standby_waits_while_storage_does_not_respond(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A standby whose job had failed would take over the leadership, and would not run the job."""

    def fail(*arguments: object) -> None:
        raise StorageError("no answer", remedy="wait")

    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
    accept(tmp_path, request)
    with monkeypatch.context() as patch:
        patch.setattr(RequestJournal, method, fail)
        master = start(sessions, tmp_path)
        assert not master._done.wait(1.5)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    assert of(sessions, request.id).wait(30)


@pytest.mark.parametrize("name", ["b" * 32, "a" * 32 + ".answer"])
def test_a_damaged_request_does_not_prevent_the_takeover(sessions: list[Session], tmp_path: Path, name: str) -> None:
    request = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
    accept(tmp_path, request)
    CheckpointStorage(f"file://{tmp_path}/checkpoints", JOB).put(f"{FOLDER}/{name}", b"{")
    running(sessions, tmp_path)
    found = of(sessions, request.id)
    assert found.wait(30)
    if name.endswith(".answer"):
        assert "the answer cannot be read" in str(found.failure)
    else:
        assert found.location


def test_an_elected_master_needs_storage_that_the_next_leader_can_read() -> None:
    session = Session(InProcess(), SubmitOptions(job_id=JOB, keep_result=True))
    session.waits_to_lead = lambda seconds: True
    env = StreamExecutionEnvironment.get_execution_environment(Configuration({"rest.port": "-1"}))
    env.from_collection([1]).print()
    with executing_on(session), pytest.raises(InvalidJob, match=r"has no execution\.checkpointing\.dir"):
        env.execute("job")
    assert not session.dispatcher.jobs()


def test_a_request_whose_file_was_not_complete_is_not_executed(tmp_path: Path) -> None:
    """A leader that is killed during a put to a file system leaves a temporary file beside the object."""
    request = Operation("cancel", {"job": JOB}, id="a" * 32)
    accept(tmp_path, request)
    folder = tmp_path / "checkpoints" / JOB / FOLDER
    (folder / request.id).rename(folder / f"{request.id}.{'0' * 32}{TEMPORARY_SUFFIX}")
    journal = RequestJournal(CheckpointStorage(f"file://{tmp_path}/checkpoints", JOB))
    assert journal.load(type("Any", (), {})()) == []


def test_an_inherited_cancel_claims_the_job_and_needs_no_slots(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim ends the previous leader, which may only be paused. Its checkpoints are deleted after that."""
    first = running(sessions, tmp_path)
    until(lambda: bool(first.checkpoints.storage.checkpoint_ids()), first)
    first.suspend()
    assert first.wait(30) is JobStatus.SUSPENDED
    savepoint = Operation("savepoint", {"directory": f"file://{tmp_path}/sp", "job": JOB}, id="a" * 32)
    request = Operation("cancel", {"job": JOB}, id="b" * 32)
    journal = RequestJournal(first.checkpoints.storage)
    journal.load(first)
    for operation in (savepoint, request):
        journal.accept(operation, first)
    claims = list_leader_folder(first.checkpoints.storage).highest_claim

    def place(*arguments: object) -> None:
        raise AssertionError("a cancel waits for slots")

    monkeypatch.setattr(JobScheduler, "place", place)
    second = start(sessions, tmp_path)
    assert second.wait(30) is JobStatus.CANCELED, second.error
    assert of(sessions, request.id).failure is None
    assert of(sessions, savepoint.id).wait(30)
    assert "CANCELED" in str(of(sessions, savepoint.id).failure)
    result = second.checkpoints.result()
    assert result is not None
    assert result.status is JobStatus.CANCELED
    assert result.epoch > claims


def test_requests_are_read_at_the_same_time_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CheckpointStorage(f"file://{tmp_path}", JOB)
    master: JobMaster = type("Any", (), {"settings": type("Settings", (), {"configuration": {}})()})()
    journal = RequestJournal(storage)
    for number in range(40):
        operation = Operation("checkpoint", id=f"{number:032x}")
        journal.accept(operation, master)
        operation.complete(result=number)
    read, at_once, most = [], 0, 0
    lock = threading.Lock()

    def slow(storage: CheckpointStorage, path: str, *more: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once, most = at_once + 1, max(most, at_once + 1)
            read.append(path)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return read_record(storage, path, *more)

    monkeypatch.setattr(request_journal, "read_record", slow)
    standby = RequestJournal(storage)
    standby.note_earlier()
    assert len(read) == 80
    assert most > 4
    journal.accept(Operation("checkpoint", id="f" * 32), master)
    read.clear()
    found = standby.load(master)
    assert read == [f"{FOLDER}/{'f' * 32}"]
    assert [operation.result for operation in found] == [*range(40), None]
    assert [operation.is_done for operation in found] == [True] * 40 + [False]
