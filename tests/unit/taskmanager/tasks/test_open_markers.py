"""At-least-once checkpoints: a task continues behind a barrier that has not arrived from all senders, without losing
records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, RowBatch
from penstock.taskmanager.exchange.rows import MARKER, OPEN_MARKER, encode_buffer
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    RestoreCommand,
    SnapshotAck,
    SnapshotCommand,
    SubtaskRestore,
    decode_ack,
    encode_command,
)
from penstock.taskmanager.stream_task import _MARK, StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.worker import ManualClock

SLOTS = 2


class Control:
    """A control connection that stores the acks."""

    def __init__(self) -> None:
        self.acks: list[LevelAck] = []

    def send(self, frame: bytes) -> None:
        self.acks.append(decode_ack(frame))

    def close(self) -> None: ...


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> list[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return [f"{value} is number {count}"]


def numbers() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    return env, env.from_source(NumberSequenceSource(0, 9), strategy, "numbers").key_by(lambda v: v % 2)


def counting() -> JobGraph:
    env, keyed = numbers()
    keyed.process(Count()).uid("count").print()
    return built(env)


def built(env: StreamExecutionEnvironment) -> JobGraph:
    program = env.get_program()
    return JobGraphBuilder(program.transformations, name="job", parallelism=SLOTS, max_parallelism=8).build()


def marker(command: EpochCommand, slot: int) -> bytes:
    """Return the marker of this slot's source for slot 0."""
    head = _MARK.pack(MARKER if command.aligns else OPEN_MARKER, slot, command.epoch)
    return head + encode_command(command) if slot == 0 else head


def buffer(sender: int, *values: int, watermark: int = MIN_TIMESTAMP) -> bytes:
    batch = RowBatch(list(values), list(values)) if values else None
    return encode_buffer(0, sender, 0, watermark, False, batch)


class Task:
    """Slot 0 of the second level. A test passes rows to it one by one."""

    def __init__(self, graph: JobGraph) -> None:
        self.lines: list[str] = []
        self.control = Control()
        environment = TaskEnvironment("job", "job", 1, ManualClock(), print_line=self.lines.append)
        control: Any = self.control
        self.stream = StreamTask(LevelTask(graph, 1, 0, environment), control)

    def run(self, *rows: bytes) -> list[list[str]]:
        """Return the lines that each row caused."""
        found = []

        def inputs() -> Any:
            for row in rows:
                yield row
                found.append(list(self.lines))
                self.lines.clear()

        for _ in self.stream.run(inputs()):
            pass
        assert all(ack.failure is None for ack in self.control.acks)
        return found

    @property
    def epochs(self) -> list[int]:
        return [ack.epoch for ack in self.control.acks if not ack.is_brief]

    def snapshot(self) -> SnapshotAck:
        [found] = [s for ack in self.control.acks for s in ack.snapshots if s.uid == "count"]
        assert not found.error
        return found


@pytest.mark.parametrize("aligns", [False, True])
def test_rows_behind_a_barrier_are_processed_before_it_has_arrived_from_all_senders(aligns: bool) -> None:
    first, second = EpochCommand(1, 0, is_first=True), EpochCommand(1, 1, aligns=aligns)
    task = Task(counting())
    lines = task.run(
        marker(first, 0),
        marker(first, 1),
        buffer(0, 2),
        marker(second, 0),
        buffer(0, 4),
        buffer(1, 6),
        marker(second, 1),
    )
    behind = ["1> 4 is number 3"] if aligns else ["1> 4 is number 2"]
    before = ["1> 6 is number 2"] if aligns else ["1> 6 is number 3"]
    assert lines[2:] == [["1> 2 is number 1"], [], [] if aligns else behind, before, behind if aligns else []]
    assert task.epochs == [0, 1]


def test_records_are_repeated_but_not_lost_after_a_failure(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    first = EpochCommand(1, 0, is_first=True)
    second = EpochCommand(1, 1, aligns=False, snapshot=SnapshotCommand(1, root, synchronous=True))
    task = Task(counting())
    task.run(
        marker(first, 0),
        marker(first, 1),
        buffer(0, 2),
        marker(second, 0),
        buffer(0, 4, 8),
        buffer(1, 6),
        marker(second, 1),
        buffer(1, 10),
    )
    taken = task.snapshot()
    assert taken.keyed is not None
    restore = RestoreCommand(root, {"count": SubtaskRestore(keyed=[taken.keyed])})
    first.restore = restore
    again = Task(counting())
    lines = again.run(marker(first, 0), marker(first, 1), buffer(0, 4, 8), buffer(1, 10))
    assert lines[2:] == [["1> 4 is number 5", "1> 8 is number 6"], ["1> 10 is number 7"]]


def test_event_time_waits_for_the_slowest_sender_behind_an_open_barrier() -> None:
    env, keyed = numbers()
    keyed.window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: a + b).print()
    first, second = EpochCommand(1, 0, is_first=True), EpochCommand(1, 1, aligns=False)
    lines = Task(built(env)).run(
        marker(first, 0),
        marker(first, 1),
        buffer(0, 2),
        marker(second, 0),
        buffer(0, 4, watermark=MAX_TIMESTAMP),
        buffer(1, 6, watermark=8),
        marker(second, 1),
        buffer(1, 8, watermark=MAX_TIMESTAMP),
    )
    assert lines[2:] == [[], [], [], [], [], ["1> 20"]]


def test_an_attempt_that_ends_within_an_epoch_has_its_barriers_in_order() -> None:
    first, second = EpochCommand(1, 0, is_first=True), EpochCommand(1, 1, aligns=False)
    last = EpochCommand(1, 2, terminate=True)
    task = Task(counting())
    lines = task.run(
        marker(first, 0),
        marker(first, 1),
        marker(second, 0),
        marker(last, 0),
        buffer(1, 6),
        marker(second, 1),
        marker(last, 1),
    )
    assert lines[4] == ["1> 6 is number 1"]
    assert task.epochs == [0, 1, 2]


def test_a_barrier_is_forwarded_unchanged() -> None:
    """The kind tells an executor whether to hold back the rows behind it."""
    task = LevelTask(counting(), 0, 0, TaskEnvironment("job", "job", 1, ManualClock()))
    control: Any = Control()
    frames = [encode_command(EpochCommand(1, 1, aligns=False)), encode_command(EpochCommand(1, 2, terminate=True))]
    control.poll = lambda timeout_s, also: frames.pop(0)
    command = b"\0" + encode_command(EpochCommand(1, 0, is_first=True))
    rows = [row for _, row in StreamTask(task, control).run(iter([command])) if row]
    assert [row[0] for row in rows if row[0] in (MARKER, OPEN_MARKER)] == [
        *[MARKER] * SLOTS,
        *[OPEN_MARKER] * SLOTS,
        *[MARKER] * SLOTS,
    ]
