"""The pipelined form of a level's task: rows before the first marker, and the waiting times of buffers and sources."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import pairwise
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.records.batch import MAX_TIMESTAMP, RowBatch
from penstock.taskmanager import stream_task
from penstock.taskmanager.exchange.row_stream import TICK_ROW
from penstock.taskmanager.exchange.rows import DATA, MARKER, encode_buffer
from penstock.taskmanager.level import LevelTask, Row
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
from penstock.taskmanager.waker import Waker
from penstock.taskmanager.worker import ManualClock

SLOTS = 2


class Control:
    """A control connection that stores the acks."""

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


def marker(slot: int, epoch: int, of: int = 0, max_ms: int = 100) -> bytes:
    command = EpochCommand(attempt=1, epoch=epoch, is_first=epoch == 0, max_ms=max_ms)
    if epoch == 0:
        command.snapshot = SnapshotCommand(1, "")
    head = _MARK.pack(MARKER, slot, epoch)
    return head + encode_command(command) if slot == of else head


def buffer(exchange: int, sender: int, watermark: int, *values: int) -> bytes:
    batch = RowBatch(list(values), list(values)) if values else None
    return encode_buffer(exchange, sender, 0, watermark, False, batch)


@pytest.mark.parametrize("late", [False, True])
def test_rows_before_the_first_command_belong_to_its_epoch(late: bool) -> None:
    """A subtask without splits announces once, before any other row, that it will send no records."""
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


def slow_job() -> JobGraph:
    """Return a job for ten numbers with two keys, in batch mode."""
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda v: v % 2).process(Slow()).print()
    return JobGraphBuilder(
        env.get_program().transformations, name="slow", parallelism=SLOTS, max_parallelism=8, mode="BATCH"
    ).build()


def test_a_barrier_passes_between_two_parts_of_the_remaining_work() -> None:
    """The job is in batch mode. The JobManager learns whether work remains."""
    job = slow_job()
    exchange = job.exchanges[0].id
    lines: list[str] = []
    control: Any = Control()
    task = LevelTask(job, 1, 0, TaskEnvironment("job", "slow", 1, ManualClock(), print_line=lines.append))
    ended = [buffer(exchange, sender, MAX_TIMESTAMP) for sender in range(SLOTS)]
    barrier = [marker(slot, epoch) for epoch in (1, 2) for slot in range(SLOTS)]
    rows = [
        *(marker(slot, 0) for slot in range(SLOTS)),
        buffer(exchange, 0, 0, *(2 * v for v in range(5)), *(2 * v + 1 for v in range(5))),
        *ended,
        TICK_ROW,
        *barrier[:SLOTS],
        *[TICK_ROW] * 20,
        *barrier[SLOTS:],
    ]
    for _ in StreamTask(task, control).run(iter(rows)):
        pass
    of_epochs = [(ack.epoch, ack.has_remaining_work) for ack in control.acks if not ack.is_brief]
    assert of_epochs == [(0, False), (1, True), (2, False)]
    assert [ack.epoch for ack in control.acks if ack.waits] == [1]
    assert len(lines) == 10


def test_no_remaining_work_is_done_after_the_last_barrier_of_a_stop() -> None:
    """The records would be repeated from the savepoint."""
    job = slow_job()
    exchange = job.exchanges[0].id
    lines: list[str] = []
    control: Any = Control()
    task = LevelTask(job, 1, 0, TaskEnvironment("job", "slow", 1, ManualClock(), print_line=lines.append))
    streamed = StreamTask(task, control)
    rows = [
        *(marker(slot, 0) for slot in range(SLOTS)),
        buffer(exchange, 0, 0, *(2 * v for v in range(5))),
        *(buffer(exchange, sender, MAX_TIMESTAMP) for sender in range(SLOTS)),
        *(marker(slot, 1, max_ms=0) for slot in range(SLOTS)),
        *[TICK_ROW] * 20,
    ]
    for _ in streamed.run(iter(rows)):
        pass
    assert task.has_remaining_work
    assert lines == []
    assert streamed._patience() != 0.0


class Slow(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> list[int]:
        stream_task.time.sleep(0.006)  # type: ignore[attr-defined]
        return [value]


class Level:
    """A task of level 0 that creates a record for each request. A flush puts the created records into one row."""

    level, slot, is_last = 0, 0, True

    def __init__(self) -> None:
        self.graph = SimpleNamespace(slots=1, exchanges=[])
        self.waiting = 0
        self.out: list[Row] = []
        self.due: int | None = 0
        self.wake: int | None = None
        self.failure = None
        self.uploads = self.has_remaining_work = False
        self.next_latency_at = math.inf
        self.environment = SimpleNamespace(clock=self, waker=Waker())

    def now_ms(self) -> int:
        return round(stream_task.time.time() * 1000)  # type: ignore[attr-defined]

    @property
    def has_unflushed(self) -> bool:
        return self.waiting > 0

    def flush(self) -> None:
        if self.waiting:
            self.out.append((0, bytes((DATA, self.waiting))))
        self.waiting = 0

    def take_output(self) -> list[Row]:
        out, self.out = self.out, []
        return out

    def next_read_at(self) -> int | None:
        return self.due

    def next_wake(self) -> int | None:
        return self.wake

    def advance_processing_time(self) -> None: ...

    def mark_latency(self, now: float) -> None: ...


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The machine's clock in s. `now.at = 5.0` sets it."""
    clock = SimpleNamespace(at=100.0)
    fake = SimpleNamespace(monotonic=lambda: clock.at, time=lambda: clock.at, perf_counter=lambda: clock.at)
    monkeypatch.setattr("penstock.taskmanager.stream_task.time", fake)
    return clock


def sent(timeout_s: float, now: SimpleNamespace, records_at: Iterable[float]) -> list[tuple[float, int]]:
    """Return when rows were sent, in s since the start of the task, and the number of records in each."""
    level: Any = Level()
    task = StreamTask(level, cast("Any", Control()), timeout_s)
    began = now.at
    found = []
    for at in records_at:
        now.at = began + at
        level.waiting += 1
        found += [(at, row[1]) for _, row in task._send_output() if row]
    return found


@pytest.mark.parametrize(
    ("timeout_s", "expected"),
    [
        (0.0, [(0.02, 1), (0.021, 1), (0.025, 1), (0.031, 1), (0.05, 1)]),
        (0.01, [(0.02, 1), (0.031, 3), (0.05, 1)]),
        (math.inf, []),
    ],
    ids=["no-timeout", "10-ms", "only-full-ones"],
)
def test_a_partly_full_buffer_waits_for_its_timeout(
    now: SimpleNamespace, timeout_s: float, expected: list[tuple[float, int]]
) -> None:
    """The first record after a quiet time is sent immediately."""
    assert sent(timeout_s, now, [0.02, 0.021, 0.025, 0.031, 0.05]) == expected


@pytest.mark.parametrize("phase_s", [0.0, 0.003, 0.0145])
def test_all_senders_send_at_the_same_moments_for_any_start_time(now: SimpleNamespace, phase_s: float) -> None:
    """A receiver of several senders wakes up once for all of them. No record waits longer than 1.25 times the timeout."""
    now.at = began = 100.0 + phase_s
    left = [began + at for at, _ in sent(0.02, now, [0.0005 * n for n in range(400)])]
    assert all(after - before <= 0.0255 for before, after in pairwise(left))
    behind_the_moment = [at % 0.02 for at in left[1:]]
    assert len(left) >= 9
    assert all(late < 0.0006 or late > 0.0199 for late in behind_the_moment)


@pytest.mark.parametrize(
    ("timeout_s", "due_s", "pauses"),
    [
        (0.01, 0.001, [0.009, 0.001]),
        (0.01, None, [0.009, 0.002, 0.004, 0.008, 0.01, 0.01]),
        (0.0, 0.001, [0.001, 0.001]),
        (math.inf, 0.001, [0.03, 0.03]),
    ],
    ids=["until-a-buffer-may-go", "ever-longer-without-input", "no-timeout", "at-most-a-nap"],
)
def test_a_source_rests_until_a_buffer_may_be_sent(
    now: SimpleNamespace, timeout_s: float, due_s: float | None, pauses: list[float]
) -> None:
    level: Any = Level()
    task = StreamTask(level, cast("Any", Control()), timeout_s)
    now.at += 0.03
    level.waiting = 1
    list(task._send_output())
    now.at += 0.001
    found = []
    for _ in pauses:
        level.due = 0 if due_s is None else round((now.at + due_s) * 1000)
        found.append(round(task._pause(), 6))  # type: ignore[arg-type]
        now.at += 0.05
    assert found == pauses


@pytest.mark.parametrize(
    ("about", "patience"),
    [
        ({}, None),
        ({"waiting": 1}, 0.009),
        ({"waiting": 1, "uploads": True}, 0.009),
        ({"uploads": True}, 0.02),
        ({"wake": 101_500}, 1.469),
        ({"wake": 100_000}, 0.019),
        ({"wake": 1 << 62}, 3600.0),
        ({"failure": "reported as soon as possible"}, 0.0),
    ],
    ids=[
        "nothing",
        "a-buffer",
        "a-buffer-and-an-upload",
        "an-upload",
        "a-timer",
        "an-overdue-timer",
        "far",
        "a-failure",
    ],
)
def test_a_task_sleeps_until_it_has_work(now: SimpleNamespace, about: dict[str, Any], patience: float | None) -> None:
    """Buffers are sent 10 ms after the previous ones. Timers are checked at most every 20 ms."""
    level: Any = Level()
    task = StreamTask(level, cast("Any", Control()), 0.01)
    now.at += 0.03
    level.waiting = 1
    list(task._send_output())
    now.at += 0.001
    vars(level).update(about)
    found = task._patience()
    assert found is None if patience is None else found == pytest.approx(patience)


@pytest.mark.parametrize(("wake_ms", "expected"), [(None, None), (100_500, 0.5)])
def test_a_source_without_records_waits_for_a_command_or_a_timer(
    now: SimpleNamespace, wake_ms: int | None, expected: float | None
) -> None:
    level: Any = Level()
    level.due, level.wake = None, wake_ms
    assert StreamTask(level, cast("Any", Control()), 0.01)._pause() == expected


def run_numbers(*commands: EpochCommand, poll_s: float = 0.0) -> tuple[list[LevelAck], list[str]]:
    """Run the source task of a job that prints 0..99, with a pause of 50 polls before each command after the first.

    Args:
        poll_s: seconds that each poll takes.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_source(NumberSequenceSource(0, 99), WatermarkStrategy.no_watermarks(), "numbers").print()
    job = JobGraphBuilder(env.get_program().transformations, name="numbers", parallelism=1, max_parallelism=8).build()
    lines: list[str] = []
    environment = TaskEnvironment("job", "numbers", 1, ManualClock(), print_line=lines.append)
    control: Any = Control()
    [uid] = [node.uid for node in job.operators if node.source is not None]
    split = job.operators[0].source.create_enumerator().discover()[0]
    first = commands[0]
    first.is_first, first.assignments = True, {uid: [SplitAssignment(split.id, split.properties)]}
    frames = iter([frame for command in commands[1:] for frame in (*[None] * 50, encode_command(command))])

    def poll(timeout_s: float | None, also: object) -> bytes | None:
        sleep(poll_s)
        return next(frames)

    control.poll = poll
    for _ in StreamTask(LevelTask(job, 0, 0, environment), control).run(iter([b"\0" + encode_command(first)])):
        pass
    return control.acks, lines


def test_a_source_that_reached_its_limit_requests_the_next_epoch_once() -> None:
    acks, lines = run_numbers(
        EpochCommand(1, 0, max_records=20), EpochCommand(1, 1, max_records=30), EpochCommand(1, 2, terminate=True)
    )
    assert [(ack.epoch, ack.is_brief, ack.waits) for ack in acks] == [
        (0, False, False),
        (0, True, True),
        (1, False, False),
        (1, True, True),
        (2, False, False),
    ]
    assert len(lines) == 50


@pytest.mark.parametrize(("limit", "is_blocked"), [(20, True), (0, False)])
def test_a_source_is_back_pressured_while_it_waits_for_the_next_epoch(limit: int, is_blocked: bool) -> None:
    """A source that has read everything waits too, but no operator downstream holds it back."""
    commands = EpochCommand(1, 0, max_records=limit), EpochCommand(1, 1), EpochCommand(1, 2, terminate=True)
    acks, _ = run_numbers(*commands, poll_s=0.002)
    blocked = sum(metrics.blocked_ms for ack in acks for metrics in ack.vertices.values())
    assert (blocked > 90) is is_blocked, blocked
    assert is_blocked or blocked < 20, blocked


def test_a_source_that_has_read_everything_requests_the_next_epoch_once() -> None:
    """A short job does not wait for the next barrier to end."""
    acks, lines = run_numbers(EpochCommand(1, 0), EpochCommand(1, 1), EpochCommand(1, 2, terminate=True))
    assert [(ack.epoch, ack.is_brief, ack.waits) for ack in acks] == [
        (0, False, False),
        (0, True, True),
        (1, False, False),
        (2, False, False),
    ]
    assert len(lines) == 100


def test_a_source_reads_nothing_after_a_barrier_that_stops_reading() -> None:
    """A stop or a rescale reads the records again. If it fails, the next epoch reads them."""
    last, on = EpochCommand(1, 1, max_ms=0), EpochCommand(1, 2, max_records=10)
    acks, lines = run_numbers(EpochCommand(1, 0, max_records=20), last, EpochCommand(1, 2, terminate=True))
    assert len(lines) == 20
    assert not any(ack.waits for ack in acks[2:])
    _, lines = run_numbers(EpochCommand(1, 0, max_records=20), last, on, EpochCommand(1, 3, terminate=True))
    assert len(lines) == 30


def test_a_failed_upload_is_the_failure_of_the_task_and_does_not_end_the_process() -> None:
    task, control = LevelTask(graph(), 0, 0, TaskEnvironment("job", "sums", 1, ManualClock())), Control()
    upload: Future[Any] = Future()
    upload.set_exception(ValueError("the content of a staged file"))
    task._pending.append(upload)
    stream = StreamTask(task, cast("Any", control))
    stream._send_news()
    stream._send_news()
    [failure] = [ack.failure for ack in control.acks]
    assert failure is not None
    assert "the content of a staged file" in failure.message
