"""Tasks on a cluster get a notification that their last snapshot is complete, whatever they do with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import CheckpointedFunction, CheckpointListener, MapFunction
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from tests.in_process import until
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


class Told(MapFunction, CheckpointedFunction, CheckpointListener):
    """A function that records its snapshots and notifications.

    `does` is its action at the last notification, after a file `last` exists. "hang" and "die" happen only once.
    """

    def __init__(self, folder: Path, does: str) -> None:
        self.folder = folder
        self.does = does

    def open(self, runtime_context: Any) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> int:
        return value

    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None:
        self.note(f"taken {self.index} {context.get_checkpoint_id()}")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if (self.folder / "last").exists() and self.does:
            self.act()
        self.note(f"told {self.index} {checkpoint_id}")

    def act(self) -> None:
        if self.does == "linger":
            time.sleep(0.8)
            return
        try:
            (self.folder / "done").touch(exist_ok=False)
        except FileExistsError:
            return
        if self.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)

    def note(self, line: str) -> None:
        with (self.folder / f"notes-{self.index}").open("a") as file:
            file.write(line + "\n")


def job(
    executor: EmbeddedExecutor,
    settings: dict[str, str],
    folder: Path,
    does: str = "",
    *,
    stops: bool = False,
    **more: str,
) -> JobMaster:
    """Start a job whose checkpoints are manual, so that each notification is the last."""
    settings |= {
        "execution.checkpointing.interval": "1 h",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    (folder / "last").touch()
    env = environment(settings, 2)
    source = DataGeneratorSource(int, None, 100.0) if stops else DataGeneratorSource(int, 200)
    env.from_source(source, None, "numbers").rebalance().map(Told(folder, does)).print()
    with executing_on(executor):
        env.execute_async("told")
    return executor.session.dispatcher.jobs()[-1]


def stopped(master: JobMaster, folder: Path) -> Operation:
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    return master.request(Operation("stop", {"directory": (folder / "savepoints").as_uri()}))


def last(folder: Path, prefix: str) -> list[int]:
    """Return the last checkpoint that each subtask has recorded for an event, or 0."""
    found = []
    for index in range(2):
        lines = (folder / f"notes-{index}").read_text().splitlines()
        found.append(max((int(line.split()[2]) for line in lines if line.startswith(prefix)), default=0))
    return found


SLOW_HANG = pytest.param("hang", marks=pytest.mark.slow)


@pytest.mark.parametrize("does", ["linger", "die", SLOW_HANG])
def test_all_tasks_receive_the_last_notification_in_any_state(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path, does: str
) -> None:
    """Finish the input. A task that takes longer than the cancellation timeout is no failure."""
    limits = {
        "task_cancellation_timeout": "300 ms",
        "execution_checkpointing_timeout": "3 s" if does == "hang" else "1 min",
    }
    master = job(executor, settings, tmp_path, does, **limits)  # type: ignore[arg-type]
    assert master.wait(60) is JobStatus.FINISHED
    assert master.history.restarts == (does != "linger")
    assert last(tmp_path, "told") == last(tmp_path, "taken")


@pytest.mark.parametrize("does", ["", "die", SLOW_HANG])
def test_a_stop_notifies_all_tasks_in_any_state(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path, does: str
) -> None:
    master = job(executor, settings, tmp_path, does, stops=True, task_cancellation_timeout="1 s")
    operation = stopped(master, tmp_path)
    assert master.wait(60) is JobStatus.FINISHED
    assert operation.failure is None
    assert master.history.restarts == 0
    assert (last(tmp_path, "told") == last(tmp_path, "taken")) is not bool(does)


@pytest.mark.slow
def test_a_task_that_hangs_in_a_notification_does_not_keep_a_cancelled_job_alive(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    master = job(executor, settings, tmp_path, "hang", task_cancellation_timeout="1 s")
    until(lambda: (tmp_path / "done").exists(), master)
    master.request(Operation("cancel"))
    assert master.wait(60) is JobStatus.CANCELED
