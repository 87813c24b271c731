"""A deployed JobManager's process: how it ends, and that a finished job never runs again."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import take_over
from penstock.cli.client import RestClient
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.election.elector import ElectionTimes
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.election.storage_claims import StorageClaims
from penstock.jobmanager.process.launch import check
from penstock.jobmanager.process.master import master_process
from penstock.jobmanager.process.master.master_process import run_master_process
from penstock.jobmanager.process.session.entry import run_script_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import InProcess, until
from tests.unit.jobmanager.job.ending.test_recorded_end import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
from pathlib import Path
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

def note(value):
    with Path({notes!r}).open("a") as out:
        out.write(f"{{value}}\\n")
    {then}
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).uid("in").map(note).uid("note").print().uid("out")
env.execute("noted")
"""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Place:
    """A folder with a program and the settings of its masters."""

    def __init__(self, folder: Path, then: str = "pass") -> None:
        self.notes = folder / "notes"
        self.script = folder / "job.py"
        self.script.write_text(PROGRAM.format(notes=str(self.notes), then=then))
        self.job_id = uuid.uuid4().hex
        self.settings = {
            "rest.port": "-1",
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "execution.checkpointing.interval": "50 ms",
            "restart-strategy.type": "none",
        }
        self.sessions: list[Session] = []

    def master(self, stop_requested: threading.Event | None = None, member: Member | None = None) -> int:
        settings = self.settings | {"execution.shutdown-on-application-finish": str(stop_requested is None).lower()}

        def program(session: Session) -> None:
            self.sessions.append(session)
            run_script_on(session, str(self.script), [], settings)

        submit = SubmitOptions(job_id=self.job_id, fresh=True, keep_result=True)
        return run_master_process(InProcess(), submit, Configuration(settings), program, stop_requested, member=member)

    @property
    def seen(self) -> list[str]:
        return self.notes.read_text().split() if self.notes.exists() else []

    def job(self) -> Any:
        return self.sessions[-1].dispatcher.job(self.job_id)


def test_a_finished_job_does_not_run_again_in_a_master_with_the_same_arguments(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.master() == 0
    assert place.seen == ["1", "2", "3"]
    assert place.job().history.end_of_input
    assert place.master() == 0
    assert place.job().history.status is JobStatus.FINISHED
    assert place.job().history.end_of_input, "and so says the next one"
    assert place.seen == ["1", "2", "3"]


def test_a_master_keeps_answering_until_it_is_shut_down(tmp_path: Path) -> None:
    place, stop_requested = Place(tmp_path), threading.Event()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(place.master(stop_requested)))
    thread.start()
    deadline = time.monotonic() + 20
    while not (place.sessions and place.job() and place.job().is_done) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert thread.is_alive()
    stop_requested.set()
    thread.join(20)
    assert codes == [0]


UNBOUNDED = """
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment()
env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").print()
env.execute("numbers")
"""


def test_a_client_reads_the_outcome_of_its_stop_before_the_process_ends(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script.write_text(UNBOUNDED)
    port = free_port()
    place.settings["rest.port"] = str(port)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(place.master()))
    thread.start()
    client = RestClient(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 30
    while not (place.sessions and place.job() and place.job().history.status is JobStatus.RUNNING):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    path = client.stop(place.job_id, f"file://{tmp_path}/savepoints")
    assert place.job().wait(30) is JobStatus.FINISHED
    time.sleep(1.0)  # the longest pause between two polls
    assert (client.wait(path, "stop", 10).location or "").startswith(f"file://{tmp_path}/savepoints/")
    thread.join(30)
    assert codes == [0]


def test_a_failed_job_has_a_nonzero_exit_code_and_may_be_retried(tmp_path: Path) -> None:
    place = Place(tmp_path, then="raise ValueError('refused')")
    assert place.master() == 1
    assert place.job().history.status is JobStatus.FAILED
    assert place.master() == 1
    assert len(place.seen) == 2


def test_a_program_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="without starting a job"):
        run_master_process(InProcess(), SubmitOptions(), Configuration({"rest.port": "-1"}), lambda session: None)


def test_a_running_job_is_suspended_and_not_cancelled_when_the_process_ends(tmp_path: Path) -> None:
    place = Place(tmp_path)
    kept = f"checkpoints/{place.job_id}/chk-*/_metadata"
    cluster = InProcess()

    def program(session: Session) -> None:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration(place.settings))
        env.from_source(NumberSequenceSource(0, 10**9), WatermarkStrategy.no_watermarks(), "numbers").uid(
            "in"
        ).print().uid("out")
        place.sessions.append(session)
        with executing_on(session):
            env.execute_async("endless")
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob(kept)) and time.monotonic() < deadline:
            time.sleep(0.01)

    submit = SubmitOptions(job_id=place.job_id, fresh=True, keep_result=True)
    settings = Configuration(place.settings)
    assert run_master_process(cluster, submit, settings, program) == 1
    assert place.job().history.status is JobStatus.SUSPENDED
    assert list(tmp_path.glob(kept))
    assert not (tmp_path / "checkpoints" / place.job_id / "result").exists()
    assert cluster.stopped


ENDLESS = """
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_source(NumberSequenceSource(0, 10**9), WatermarkStrategy.no_watermarks(), "numbers").uid("in").print().uid("out")
env.execute("endless")
"""


def test_a_restarted_master_continues_from_its_checkpoints_for_any_arguments(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script.write_text(ENDLESS)
    folder = tmp_path / "checkpoints" / place.job_id
    numbers: list[int] = []
    for _ in range(2):
        stop_requested = threading.Event()
        thread = threading.Thread(target=place.master, args=(stop_requested,))
        thread.start()
        deadline = time.monotonic() + 30
        least = max(numbers, default=0) + 2
        while not list(folder.glob(f"chk-{least}/_metadata")) and time.monotonic() < deadline:
            time.sleep(0.005)
            if place.sessions and place.job() and place.job().history.status is JobStatus.FAILED:
                break
        stop_requested.set()
        thread.join(20)
        assert place.job().history.status is JobStatus.SUSPENDED, place.job().history.failures
        numbers.append(max(int(f.parent.name[4:]) for f in folder.glob("chk-*/_metadata")))
    assert numbers[1] > numbers[0]


def test_a_superseded_master_reports_this_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master remains available when its job has ended, but not when its job continues elsewhere."""
    monkeypatch.setattr(master_process, "FENCED_EXIT_DELAY_S", 0.5)
    place, stop_requested = Place(tmp_path), threading.Event()
    place.script.write_text(ENDLESS)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(place.master(stop_requested)))
    thread.start()
    folder = tmp_path / "checkpoints" / place.job_id
    deadline = time.monotonic() + 30
    while not list(folder.glob("chk-*/_metadata")) and time.monotonic() < deadline:
        time.sleep(0.01)
    take_over(CheckpointStorage(f"file://{tmp_path}/checkpoints", place.job_id), name="another").begin()
    thread.join(30)
    assert codes == [master_process.EXIT_FENCED]
    assert place.job().history.status is JobStatus.SUSPENDED
    assert list(folder.glob("chk-*/_metadata")), "they are the other one's"


def test_check_uses_a_newer_checkpoint_if_a_running_job_has_deleted_the_given_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script.write_text(ENDLESS)
    stop_requested = threading.Event()
    thread = threading.Thread(target=place.master, args=(stop_requested,))
    thread.start()
    folder = tmp_path / "checkpoints" / place.job_id
    deadline = time.monotonic() + 30
    while not list(folder.glob("chk-[3-9]/_metadata")) and time.monotonic() < deadline:
        time.sleep(0.01)
    place.job().suspend()
    stop_requested.set()
    thread.join(20)
    assert not (folder / "chk-1").exists()
    arguments: dict[str, Any] = {"entry": str(place.script), "args": [], "parallelism": 1, "configuration": {}}
    assert check(**arguments, against=f"file://{folder}/chk-1")["problems"] == []
    refused = check(**arguments, against=f"file://{tmp_path}/savepoint-1")["problems"]
    assert [problem["code"] for problem in refused] == ["SNAPSHOT_NOT_FOUND"]


@pytest.mark.parametrize("key", ["execution.checkpointing.dir", "execution.checkpointing.savepoint-dir"])
def test_check_writes_to_the_storage(tmp_path: Path, key: str) -> None:
    place = Place(tmp_path)
    place.script.write_text(ENDLESS)
    (tmp_path / "file").touch()
    arguments: dict[str, Any] = {"entry": str(place.script), "args": [], "parallelism": 1, "against": None}
    good = check(**arguments, configuration={key: f"file://{tmp_path}/new/folder"})
    assert good["problems"] == []
    assert not list(tmp_path.glob("new/folder/*"))
    (problem,) = check(**arguments, configuration={key: f"file://{tmp_path}/file/folder"})["problems"]
    assert problem["code"] == "STORAGE"
    assert problem["message"].startswith(f"{key} = file://{tmp_path}/file/folder cannot be written: ")
    assert problem["remedy"]


def test_check_reports_the_storage_before_the_program_that_needs_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script.write_text("raise OSError('403: as the sink is made')")
    (tmp_path / "file").touch()
    nowhere = {"execution.checkpointing.dir": f"file://{tmp_path}/file/folder"}
    arguments: dict[str, Any] = {"entry": str(place.script), "args": [], "parallelism": 1, "against": None}
    assert [problem["code"] for problem in check(**arguments, configuration=nowhere)["problems"]] == ["STORAGE"]
    (problem,) = check(**arguments, configuration={})["problems"]
    assert problem["code"] == "USER_CODE"
    assert problem["location"].partition(":")[0].endswith(".py")


def test_the_id_of_a_running_job_is_refused_before_a_cluster_is_requested() -> None:
    cluster = InProcess()
    arguments: list[Any] = []
    cluster.runner_for = lambda *_, **__: arguments.append(1) or InProcessRunner()  # type: ignore[method-assign]
    session = Session(cluster, SubmitOptions(job_id="0" * 32))
    session.on_line = None
    with executing_on(session):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_source(NumberSequenceSource(0, 10**9), None, "numbers").print()
        client = env.execute_async("first")
        env.from_collection([1]).print()
        with pytest.raises(InvalidJob, match="running already"):
            env.execute_async("second")
    assert arguments == [1]
    client.cancel().result()


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    made: list[Session] = []
    yield made
    for session in made:
        session.stop()


@pytest.mark.parametrize("hands_over", [True, False])
def test_a_leader_with_a_standby_takes_a_last_checkpoint(
    sessions: list[Session], tmp_path: Path, *, hands_over: bool
) -> None:
    job = running(sessions, tmp_path, settings={"execution.checkpointing.interval": "1 h"})
    before = job.checkpoints.storage.checkpoint_ids()
    master_process.suspend(sessions[-1], hands_over=hands_over)
    assert job.wait(30) is JobStatus.SUSPENDED
    assert len(job.checkpoints.storage.checkpoint_ids()) == len(before) + hands_over


def test_a_last_checkpoint_that_hangs_does_not_keep_the_leader(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(sessions, tmp_path)
    monkeypatch.setattr(master_process, "LAST_CHECKPOINT_S", 0.2)
    requested: list[Operation] = []
    monkeypatch.setattr(job, "request", lambda operation: requested.append(operation) or operation)
    master_process.suspend(sessions[-1], hands_over=True)
    assert job.wait(30) is JobStatus.SUSPENDED
    assert [operation.kind for operation in requested] == ["checkpoint"]


def test_a_leader_takes_a_last_checkpoint_of_a_job_that_its_program_does_not_wait_for(tmp_path: Path) -> None:
    place, stop_requested = Place(tmp_path), threading.Event()
    place.settings["execution.checkpointing.interval"] = "1 h"
    place.script.write_text(ENDLESS.replace("execute(", "execute_async("))
    claims = StorageClaims(CheckpointStorage(f"file://{tmp_path}/ha", place.job_id))
    member = Member(claims, "a", "127.0.0.1", ElectionTimes())
    leader = threading.Thread(target=place.master, args=(stop_requested, member), daemon=True)
    leader.start()
    deadline = time.monotonic() + 30
    while not (place.sessions and place.job()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job = place.job()
    until(lambda: job.history.status is JobStatus.RUNNING, job)
    stop_requested.set()
    leader.join(30)
    assert job.history.status is JobStatus.SUSPENDED
    assert len(job.checkpoints.storage.checkpoint_ids()) == 1
