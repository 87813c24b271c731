"""Tasks are notified that their last snapshot is complete.

A function that commits in that notification has committed everything when the job ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.job_status import JobStatus
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import CheckpointedFunction, CheckpointListener, MapFunction
from penstock.datastream.state import ListStateDescriptor
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until


class Commits(MapFunction, CheckpointedFunction, CheckpointListener):
    """A function that records its checkpoints and the notifications of their completion.

    Args:
        fails: how often it raises in a notification after the last record, or once there is a file `fail`.
    """

    def __init__(self, notes: Path, count: int, fails: int = 0) -> None:
        self.notes = notes
        self.count = count
        self.fails = fails
        self.seen = 0

    def map(self, value: int) -> int:
        self.seen = value + 1
        return value

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.seen])
        self.note(f"taken {context.get_checkpoint_id()}")

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.seen = max(self.state.get(), default=0)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"told {checkpoint_id}")
        is_due = self.seen == self.count or self.notes.with_name("fail").exists()
        if is_due and self.notes.read_text().count("raised") < self.fails:
            self.note("raised")
            raise RuntimeError("as ordered")

    def note(self, line: str) -> None:
        with self.notes.open("a") as file:
            file.write(line + "\n")


def job(folder: Path, notes: Path, *, count: int = 200, fails: int = 0, interval: str = "50 ms") -> JobMaster:
    notes.touch()
    env = environment(
        folder,
        **{
            "execution.checkpointing.interval": interval,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "10 ms",
        },
    )
    env.set_parallelism(1)
    stream = env.from_source(DataGeneratorSource(lambda n: n, count, 1000.0), WatermarkStrategy.no_watermarks(), "in")
    stream.map(Commits(notes, count, fails)).print()
    return started(env)


def numbers(notes: Path, prefix: str) -> list[int]:
    return [int(line.split()[1]) for line in notes.read_text().splitlines() if line.startswith(prefix)]


def test_the_end_of_the_input_is_notified(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert job(tmp_path, notes).wait(60) is JobStatus.FINISHED
    assert numbers(notes, "told")[-1] == numbers(notes, "taken")[-1]


def test_a_stop_is_notified(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    master = job(tmp_path, notes, count=1_000_000)
    until(lambda: bool(numbers(notes, "told")), master)
    operation = master.request(Operation("stop", {"directory": (tmp_path / "savepoints").as_uri()}))
    assert master.wait(60) is JobStatus.FINISHED
    assert operation.failure is None
    assert numbers(notes, "told")[-1] == numbers(notes, "taken")[-1]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_function_that_fails_in_the_notification_of_the_end_is_notified_again(tmp_path: Path, fails: int) -> None:
    notes = tmp_path / "notes"
    master = job(tmp_path, notes, fails=fails)
    assert master.wait(60) is JobStatus.FINISHED
    assert master.history.restarts == fails
    assert notes.read_text().count("raised") == fails
    assert numbers(notes, "told")[-1] == numbers(notes, "taken")[-1]


def test_a_function_that_always_fails_in_the_notification_of_the_end_fails_the_job(tmp_path: Path) -> None:
    master = job(tmp_path, tmp_path / "notes", fails=1000)
    assert master.wait(60) is JobStatus.FAILED
    assert "as ordered" in str(master.error)


def test_a_stop_with_a_complete_savepoint_succeeds_although_a_notification_fails(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    master = job(tmp_path, notes, count=1_000_000, fails=1000, interval="1 h")
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    notes.with_name("fail").touch()
    operation = master.request(Operation("stop", {"directory": (tmp_path / "savepoints").as_uri()}))
    assert master.wait(60) is JobStatus.FINISHED
    assert operation.failure is None
    assert "raised" in notes.read_text()
