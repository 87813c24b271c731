"""While requests are pending a task handles commands, timers and output, and an answer wakes it."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream import AsyncDataStream, StreamExecutionEnvironment
from penstock.functions.operator_context import SystemClock
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.taskmanager.exchange.rows import MARKER, TICK, encode_buffer
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    SnapshotCommand,
    SplitAssignment,
    decode_ack,
    encode_command,
)
from penstock.taskmanager.stream_task import _MARK, StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment

LAST = 5


class Service:
    """A service that answers no request before it is open."""

    is_open = threading.Event()
    requests: list[int] = []


async def ask(value: int) -> list[int]:
    Service.requests.append(value)
    while not Service.is_open.is_set():
        await asyncio.sleep(0.001)
    return [value]


@pytest.fixture(autouse=True)
def _service() -> Iterator[None]:
    Service.is_open, Service.requests = threading.Event(), []
    yield
    Service.is_open.set()


class Control:
    """A control connection that returns a command when its condition is true. It sleeps as the real one does."""

    def __init__(self, *commands: tuple[Any, EpochCommand]) -> None:
        self.commands = deque(commands)
        self.acks: list[LevelAck] = []

    def poll(self, timeout_s: float | None, also: tuple[int, ...]) -> bytes | None:
        if self.commands[0][0]():
            return encode_command(self.commands.popleft()[1])
        select.select(also, (), (), 0.05 if timeout_s is None else min(timeout_s, 0.05))
        return None

    def send(self, frame: bytes) -> None:
        self.acks.append(decode_ack(frame))

    def close(self) -> None: ...


def in_flight(ack: LevelAck) -> int:
    items = [s.operator.get("async-in-flight", {"items": []})["items"] for s in ack.snapshots]
    return sum(map(len, items))


def test_a_source_with_a_full_operator_still_executes_commands() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, LAST), WatermarkStrategy.no_watermarks(), "numbers")
    AsyncDataStream.unordered_wait(numbers, ask, 60_000, capacity=2).print()
    job = JobGraphBuilder(env.get_program().transformations, name="job", parallelism=1, max_parallelism=8).build()
    lines: list[str] = []
    environment = TaskEnvironment("job", "job", 1, SystemClock(), print_line=lines.append)
    source = job.operators[0]
    split = source.source.create_enumerator().discover()[0]
    first = EpochCommand(1, 0, is_first=True, assignments={source.uid: [SplitAssignment(split.id, split.properties)]})

    def opened() -> bool:
        Service.is_open.set()
        return len(lines) == LAST + 1

    control: Any = Control(
        (lambda: len(Service.requests) == 2, EpochCommand(1, 1, snapshot=SnapshotCommand(1, ""))),
        (opened, EpochCommand(1, 2, terminate=True)),
    )
    for _ in StreamTask(LevelTask(job, 0, 0, environment), control).run(iter([b"\0" + encode_command(first)])):
        pass
    barrier = next(ack for ack in control.acks if ack.epoch == 1 and not ack.is_brief)
    assert 2 <= in_flight(barrier) <= 3
    assert barrier.vertices[0].records_in == in_flight(barrier)
    assert sorted(map(int, lines)) == list(range(LAST + 1))
    assert [ack.failure for ack in control.acks] == [None] * len(control.acks)


def test_a_deeper_task_with_a_full_operator_still_handles_timers_and_output() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, LAST), WatermarkStrategy.no_watermarks(), "numbers")
    AsyncDataStream.ordered_wait(numbers.rebalance(), ask, 60_000, capacity=1).print()
    job = JobGraphBuilder(env.get_program().transformations, name="job", parallelism=1, max_parallelism=8).build()
    lines: list[str] = []
    level = LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, SystemClock(), print_line=lines.append))
    level.begin(EpochCommand(1, 0, is_first=True))
    values = list(range(4))
    turns = 0
    level.environment.waker.set()
    began = time.monotonic()
    for _ in level.process(encode_buffer(job.exchanges[0].id, 0, 0, MIN_TIMESTAMP, False, RowBatch(values, None))):
        turns += 1
        if turns == 3:
            Service.is_open.set()
    assert turns > 3
    assert time.monotonic() - began > 0.02, "the task does not sleep while it waits"
    deadline = time.monotonic() + 20
    while len(lines) < len(values) and time.monotonic() < deadline:
        level.environment.waker.wait(1)
        level.take_finished()
    assert lines == list(map(str, values))
    level.close()
    assert level.failure is None


def test_an_answer_wakes_a_task() -> None:
    """Its patience is unlimited. A file descriptor, which its reader of rows also watches, wakes it."""
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, LAST), WatermarkStrategy.no_watermarks(), "numbers")
    AsyncDataStream.ordered_wait(numbers.rebalance(), ask, 60_000).print()
    job = JobGraphBuilder(env.get_program().transformations, name="job", parallelism=1, max_parallelism=8).build()
    lines: list[str] = []
    level = LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, SystemClock(), print_line=lines.append))
    control: Any = Control()
    task = StreamTask(level, control, 0.0)

    def rows() -> Iterator[bytes]:
        yield _MARK.pack(MARKER, 0, 0) + encode_command(EpochCommand(1, 0, is_first=True))
        yield encode_buffer(job.exchanges[0].id, 0, 0, MIN_TIMESTAMP, False, RowBatch([7], None))
        level.next_wake = lambda: None  # type: ignore[method-assign]  # the interval of the sink must not wake it
        assert task._patience() is None
        Service.is_open.set()
        assert select.select(level.environment.waker.files(), (), (), 20)[0]
        yield bytes((TICK,))

    for _ in task.run(rows()):
        pass
    assert lines == ["7"]
    level.close()
