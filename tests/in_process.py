"""Jobs in the test's process, for tests that need a whole JobMaster but no cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord, newest
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample, filter_samples, sample
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.jobmanager.runners.in_process import TASK_MANAGER, InProcessRunner
from penstock.taskmanager.watching.edge_taps import peek
from penstock.taskmanager.watching.places import place_of

PATIENCE_S = 60.0


class OneRunner:
    """A cluster whose jobs run on this runner, one after the other."""

    def __init__(self, runner: InProcessRunner) -> None:
        self.runner = runner
        self.runners = [runner]
        self.stopped = False

    def runner_for(self, slots: int, levels: int, settings: Any, *, dataframes: bool) -> InProcessRunner:
        return self.runner

    def task_managers(self) -> list[Worker]:
        slots = tuple(map(str, range(self.runner.available_slots())))
        return [Worker(TASK_MANAGER, "localhost", 0, slots, int(time.time() * 1000))]

    def logs(self, task_manager: str) -> LogFiles:
        return LogFiles()

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        return filter_samples(sample(question.seconds, question.hertz, lambda frames: place_of(frames, [])), of)

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        parts = peek(question, lambda: [task for runner in self.runners for task in runner.tasks()])
        return newest([record for part in parts for record in part], question.count)

    def readings(self, task_manager: str | None) -> str:
        return ""

    def stop(self) -> None:
        self.stopped = True


class InProcess(OneRunner):
    """A cluster with slots in this process and a separate runner for each job."""

    def __init__(self, slots: int = 64) -> None:
        super().__init__(InProcessRunner(slots))
        self.slots = slots

    def runner_for(self, slots: int, levels: int, settings: Any, *, dataframes: bool) -> InProcessRunner:
        self.runners.append(InProcessRunner(self.slots))
        return self.runners[-1]


def environment(folder: Path, **settings: str) -> StreamExecutionEnvironment:
    conf = Configuration(
        {
            "rest.port": "-1",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"file://{folder}/savepoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **settings,
        }
    )
    return StreamExecutionEnvironment.get_execution_environment(conf)


def started(env: StreamExecutionEnvironment, submit: SubmitOptions | None = None) -> JobMaster:
    """Start a program and return its JobMaster. The job is running or about to run."""
    session = Session(InProcess(), submit)
    with executing_on(session):
        env.execute_async("first")
    return session.dispatcher.jobs()[0]


def run(env: StreamExecutionEnvironment, submit: SubmitOptions | None = None) -> JobMaster:
    """Run a program to its end and return its JobMaster."""
    session = Session(InProcess(), submit)
    with executing_on(session):
        env.execute("good")
    return session.dispatcher.jobs()[0]


def until(condition: Callable[[], bool], master: JobMaster) -> None:
    """Wait until the condition holds. Fail if the job ends first or the wait times out."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert not master.is_done, f"the job ended as {master.history.status.value}: {master.error}"
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s in vain"
        time.sleep(0.01)
