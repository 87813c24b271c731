"""A task that fails before its first epoch reports it in the ack of its attempt."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.datastream.functions import MapFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.taskmanager.exchange.rows import COMMAND
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    RestoreCommand,
    SubtaskRestore,
    decode_ack,
    encode_command,
)
from penstock.taskmanager.stream_task import StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.worker import ManualClock

ATTEMPT = 7


class NoDatabase(MapFunction):
    def open(self, runtime_context: Any) -> None:
        raise RuntimeError("no database")

    def map(self, value: Any) -> Any:
        return value


def graph() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(NoDatabase()).uid("asks").print()
    return JobGraphBuilder(env.get_program().transformations, name="asks", parallelism=1, max_parallelism=8).build()


class Control:
    """A control connection that stores the frames of a task."""

    def __init__(self) -> None:
        self.acks: list[LevelAck] = []

    def send(self, frame: bytes) -> None:
        self.acks.append(decode_ack(frame))

    def poll(self, timeout_s: float = 0.0, also: tuple[int, ...] = ()) -> bytes | None:
        raise ConnectionError("the attempt is over")

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("restore", "message"),
    [
        (None, "no database"),
        (RestoreCommand("file:///nowhere", {"asks": SubtaskRestore(operator=[{"no": {"items": []}}])}), "KeyError"),
    ],
    ids=["open", "restore"],
)
def test_the_failure_contains_the_number_of_the_attempt(restore: RestoreCommand | None, message: str) -> None:
    control = Control()
    task = LevelTask(graph(), 0, 0, TaskEnvironment("job", "asks", ATTEMPT, ManualClock()))
    command = EpochCommand(attempt=ATTEMPT, epoch=0, is_first=True, restore=restore)
    row = bytes((COMMAND,)) + encode_command(command)
    with pytest.raises(ConnectionError):
        list(StreamTask(task, cast("Any", control)).run(iter([row])))
    failed = [ack for ack in control.acks if ack.failure is not None]
    assert failed
    assert {ack.attempt for ack in failed} == {ATTEMPT}
    assert message in cast("Any", failed[0].failure).traceback
