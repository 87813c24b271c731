"""The pipelined form of a level's task: what comes before the first marker of all slots is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.taskmanager.batch import MAX_TIMESTAMP, RowBatch
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.protocol import EpochCommand, LevelAck, SnapshotCommand, decode_ack, encode_command
from penstock.taskmanager.rows import MARKER, encode_buffer
from penstock.taskmanager.stream_task import _MARK, StreamTask
from penstock.taskmanager.subtask import TaskEnvironment
from penstock.taskmanager.worker import ManualClock

SLOTS = 2


class Control:
    """Takes the acks."""

    def __init__(self) -> None:
        self.acks: list[LevelAck] = []

    def send(self, frame: bytes) -> None:
        self.acks.append(decode_ack(frame))

    def close(self) -> None: ...


def graph() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    numbers = env.from_source(NumberSequenceSource(0, 9), strategy, "numbers")
    windows = numbers.key_by(lambda v: v % 2).window(TumblingEventTimeWindows.of(10))
    windows.reduce(lambda a, b: a + b).print()
    program = env.get_program()
    builder = JobGraphBuilder(program.transformations, name="sums", parallelism=SLOTS, max_parallelism=8)
    return builder.build()


def marker(slot: int, epoch: int, of: int = 0) -> bytes:
    command = EpochCommand(attempt=1, epoch=epoch, is_first=epoch == 0)
    if epoch == 0:
        command.snapshot = SnapshotCommand(1, "")
    head = _MARK.pack(MARKER, slot, epoch)
    return head + encode_command(command) if slot == of else head


def buffer(exchange: int, sender: int, watermark: int, *values: int) -> bytes:
    batch = RowBatch(list(values), list(values)) if values else None
    return encode_buffer(exchange, sender, 0, watermark, False, batch)


@pytest.mark.parametrize("late", [False, True])
def test_rows_before_the_first_command_are_part_of_its_epoch(late: bool) -> None:
    """A subtask without splits says once, before any other row, that nothing will come from it."""
    job = graph()
    exchange = job.exchanges[0].id
    lines: list[str] = []
    environment = TaskEnvironment("job", "sums", 1, ManualClock(), print_line=lines.append)
    control: Any = Control()
    task = LevelTask(job, 1, 0, environment)
    rest = [buffer(exchange, 1, MAX_TIMESTAMP), marker(1, 0)]
    rows = [
        *(rest if not late else []),
        marker(0, 0),
        buffer(exchange, 0, 8, 2, 4, 8),
        *(rest if late else []),
        buffer(exchange, 0, MAX_TIMESTAMP),
        marker(0, 1),
        marker(1, 1),
    ]
    for _ in StreamTask(task, control).run(iter(rows)):
        pass
    assert lines == ["1> 14"]
    assert [ack.epoch for ack in control.acks if not ack.is_brief] == [0, 1]
    assert all(ack.failure is None for ack in control.acks)
