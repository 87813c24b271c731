"""A cancelled job leaves nothing behind, at whatever moment it is cancelled."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.executor import executing_on
from penstock.common.job_status import JobStatus
from penstock.connectors.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.in_process import InProcessRunner
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.session import Session

COMMITTING = threading.Event()
GO_ON = threading.Event()


class InProcess:
    def runner_for(self, slots: int, levels: int, settings: Any, *, bounded: bool) -> InProcessRunner:
        return InProcessRunner(slots)

    def available_slots(self) -> int:
        return 1

    def stop(self) -> None: ...


class SlowToCommit(TwoPhaseCommitSinkFunction):
    def begin_transaction(self) -> str:
        return "t"

    def invoke(self, transaction: str, value: int, context: Any) -> None: ...

    def pre_commit(self, transaction: str) -> None: ...

    def commit(self, transaction: str) -> None:
        COMMITTING.set()
        assert GO_ON.wait(30)

    def abort(self, transaction: str) -> None: ...


def test_checkpoints_go_even_if_a_commit_was_under_way(tmp_path: Path) -> None:
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
    GO_ON.set()
    assert master.wait(30) is JobStatus.CANCELED
    assert not list(tmp_path.rglob("chk-*"))
