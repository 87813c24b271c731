"""Barriers of a job that hold records back, and the warning about sinks if barriers do not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.serialization import Encoder
from penstock.datastream import CheckpointingMode, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.jobmanager.runners.runner import Watch, unwatched
from penstock.taskmanager.protocol import EpochCommand, LevelAck
from tests.in_process import OneRunner, environment


class Recording(InProcessRunner):
    """A runner that claims to stream, as the pipelined runner does."""

    streaming = True

    def __init__(self) -> None:
        super().__init__(4)
        self.commands: list[EpochCommand] = []

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        self.commands.append(commands[0])
        return super().run_epoch(commands, watch)


def barriers(env: StreamExecutionEnvironment, folder: Path) -> list[bool]:
    """Run a job with a file sink and return, for each barrier, whether it aligns.

    The first barrier and the barriers that end the job align.
    """
    runner = Recording()
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    env.from_collection(range(100)).map(slowly).sink_to(sink)
    cluster: Any = OneRunner(runner)
    with executing_on(Session(cluster)):
        env.execute()
    assert runner.commands[0].aligns
    *_, last, telling = runner.commands
    assert last.finish
    assert telling.only_notifies
    assert all(command.aligns for command in runner.commands if not command.max_ms)
    return [command.aligns for command in runner.commands[1:] if command.max_ms]


def slowly(value: int) -> int:
    time.sleep(0.002)
    return value


@pytest.mark.parametrize(
    ("mode", "batch", "expected"),
    [
        (CheckpointingMode.EXACTLY_ONCE, False, {True}),
        (CheckpointingMode.AT_LEAST_ONCE, False, {False}),
        (CheckpointingMode.AT_LEAST_ONCE, True, {True}),
    ],
)
def test_barriers_hold_records_back_unless_at_least_once_is_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: CheckpointingMode, batch: bool, expected: set[bool]
) -> None:
    env = environment(tmp_path)
    env.get_checkpoint_config().set_checkpointing_mode(mode)
    if batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    assert set(barriers(env, tmp_path / "out")) == expected
    warned = [r.getMessage() for r in caplog.records if "AT_LEAST_ONCE. After a failure" in r.getMessage()]
    assert len(warned) == (expected == {False})
