"""A job that is cancelled at any moment leaves no unfinished files."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import EpochFailed
from penstock.common.job_status import JobStatus
from penstock.connectors.core.sink import Committer
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess
from tests.unit.jobmanager.coordinators.committing import NO_FILES, Into, graph_of

RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
COMMITTING = threading.Event()
CONTINUE = threading.Event()


class SlowToCommit(TwoPhaseCommitSinkFunction):
    def begin_transaction(self) -> str:
        return "t"

    def invoke(self, transaction: str, value: int, context: Any) -> None: ...

    def pre_commit(self, transaction: str) -> None: ...

    def commit(self, transaction: str) -> None:
        COMMITTING.set()
        assert CONTINUE.wait(30)

    def abort(self, transaction: str) -> None: ...


def start(folder: Path, *, savepoint: str = "", fails: bool = False, **settings: str) -> JobMaster:
    """Start a job that writes numbers to `<folder>/out` in parts that stay open, and wait for one complete checkpoint."""
    conf = Configuration(
        {
            "rest.port": "-1",
            "execution.checkpointing.interval": "20 ms",
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "1 h",
            **settings,
        }
    )

    def failing(value: int) -> int:
        if fails and list((folder / "checkpoints").rglob("chk-*/_metadata")) and unfinished(folder):
            raise ValueError("no good")
        return value

    env = StreamExecutionEnvironment.get_execution_environment(conf)
    numbers = env.from_source(DataGeneratorSource(int, None, 1000.0), None, "numbers").map(failing)
    numbers.sink_to(FileSink.for_row_format(str(folder / "out"), str).build()).uid("files")
    session = Session(InProcess(), SubmitOptions(restore_path=savepoint))
    with executing_on(session):
        env.execute_async("writes")
    master = session.dispatcher.jobs()[0]
    until(master, lambda: fails or (master.checkpoints.coordinator.latest is not None and unfinished(folder)))
    return master


def unfinished(folder: Path) -> list[Path]:
    return list((folder / "out").rglob(".part-*"))


def until(master: JobMaster, holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert not master.is_done, master.error
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cancel(master: JobMaster) -> None:
    master.request(Operation("cancel"))
    assert master.wait(30) is JobStatus.CANCELED


class TestUnfinishedFiles:
    def test_unfinished_files_are_removed_with_the_checkpoints(self, tmp_path: Path) -> None:
        cancel(start(tmp_path))
        assert not unfinished(tmp_path)

    def test_unfinished_files_are_kept_with_a_retained_checkpoint(self, tmp_path: Path) -> None:
        master = start(tmp_path, **{RETENTION: "RETAIN_ON_CANCELLATION"})  # type: ignore[arg-type]
        cancel(master)
        assert len(unfinished(tmp_path)) == 1
        retained = master.checkpoints.storage.checkpoint_ids()[-1]
        again = start(tmp_path, savepoint=master.checkpoints.location(retained))
        until(again, lambda: again.checkpoints.coordinator.latest is not None)
        assert again.history.restarts == 0
        cancel(again)

    def test_unfinished_files_are_kept_with_a_savepoint(self, tmp_path: Path) -> None:
        master = start(tmp_path)
        operation = master.request(Operation("savepoint", {"directory": f"file://{tmp_path}/savepoints"}))
        operation.wait(30)
        cancel(master)
        assert len(unfinished(tmp_path)) == 1
        assert operation.location is not None
        again = start(tmp_path, savepoint=operation.location)
        cancel(again)
        assert len(unfinished(tmp_path)) == 1, "the savepoint can be restored once more"

    def test_unfinished_files_are_removed_if_the_job_waited_for_its_restart(self, tmp_path: Path) -> None:
        master = start(tmp_path, fails=True)
        until(master, lambda: master.history.status is JobStatus.RESTARTING)
        assert unfinished(tmp_path)
        cancel(master)
        assert not unfinished(tmp_path)
        assert not list(tmp_path.rglob("chk-*"))

    def test_unfinished_files_of_a_permanently_failed_job_are_removed(self, tmp_path: Path) -> None:
        master = start(tmp_path, fails=True, **{"restart-strategy.type": "none"})
        assert master.wait(30) is JobStatus.FAILED
        assert not unfinished(tmp_path)

    def test_unfinished_files_of_a_failed_job_are_kept_with_its_checkpoint(self, tmp_path: Path) -> None:
        kept = {RETENTION: "DELETE_ON_CANCELLATION", "restart-strategy.type": "none"}
        master = start(tmp_path, fails=True, **kept)
        assert master.wait(30) is JobStatus.FAILED
        named = master.checkpoints.storage.read_manifest(master.checkpoints.storage.checkpoint_ids()[-1]).commits
        assert {str(path) for path in unfinished(tmp_path)} == {piece["temp"] for piece in named["files"]}


def test_checkpoints_are_removed_even_if_a_commit_was_in_progress(tmp_path: Path) -> None:
    conf = Configuration()
    for key, value in {
        "rest.port": "-1",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": f"file://{tmp_path}",
    }.items():
        conf.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(conf)
    env.from_source(DataGeneratorSource(int, None, 1000.0), None, "numbers").sink_to(TwoPhaseCommitSink(SlowToCommit()))
    session = Session(InProcess())
    with executing_on(session):
        env.execute_async("cancelled")
    master = session.dispatcher.jobs()[0]
    assert COMMITTING.wait(30)
    assert list(tmp_path.rglob("chk-*"))
    master.request(Operation("cancel"))
    while master.history.status is not JobStatus.CANCELLING:
        assert not master.is_done
        time.sleep(0.01)
    CONTINUE.set()
    assert master.wait(30) is JobStatus.CANCELED
    assert not list(tmp_path.rglob("chk-*"))


class TestACommitThatDoesNotReturn:
    """A commit in the JobManager's process, as the function of `to_spark`. It cannot be killed."""

    def test_a_hung_commit_is_abandoned_and_keeps_its_checkpoint(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        COMMITTING.clear()
        CONTINUE.clear()
        conf = Configuration(
            {
                "rest.port": "-1",
                "execution.checkpointing.interval": "20 ms",
                "execution.checkpointing.dir": f"file://{tmp_path}",
                "task.cancellation.timeout": "100 ms",
                "task.cancellation.interval": "200 ms",
            }
        )
        env = StreamExecutionEnvironment.get_execution_environment(conf)
        numbers = env.from_source(DataGeneratorSource(int, None, 1000.0), None, "numbers")
        numbers.sink_to(TwoPhaseCommitSink(SlowToCommit())).name("target")
        session = Session(InProcess())
        with executing_on(session):
            env.execute_async("stuck")
        master = session.dispatcher.jobs()[0]
        assert COMMITTING.wait(30)
        began = time.monotonic()
        cancel(master)
        assert time.monotonic() - began < 15
        assert "the commit of sink 'target' runs in this process and cannot be killed" in caplog.text
        assert "the commit of sink 'target' does not return" in caplog.text
        assert list(tmp_path.rglob("chk-*")), "what it promised can be carried out once more"
        CONTINUE.set()

    def test_a_hung_commit_does_not_delay_a_job_that_fails_over_and_is_cancelled(self) -> None:
        commits, released = SinkCommits("job", {}), threading.Event()
        commits.begin_attempt(graph_of(Into(Stuck(released))), {}, {}, 1, NO_FILES)
        commits.commit(1, {"out": ["piece"]})
        commits.give_up()
        with pytest.raises(EpochFailed, match="'out' was abandoned"):
            commits.wait()
        assert commits.close() == []
        assert released.is_set(), "it was interrupted"

    def test_a_hung_commit_does_not_keep_the_process_alive(self) -> None:
        program = (
            "import time; from penstock.jobmanager.coordinators.work_thread import WorkThread; "
            "WorkThread('commit').submit(lambda: time.sleep(600)); time.sleep(0.1)"
        )
        assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


class Stuck(Committer):
    def __init__(self, released: threading.Event) -> None:
        self._released = released

    def commit(self, committables: list[Any]) -> None:
        self._released.wait(60)
        raise OSError("interrupted")

    def interrupt(self) -> None:
        self._released.set()
