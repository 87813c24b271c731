"""The answers of a task to look-ups between two batches. No look-up can stop the task."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import key_group, subtask_for_key_group
from penstock.state.peek.rows import row_of
from penstock.taskmanager import stream_task
from penstock.taskmanager.exchange.row_stream import TICK_ROW, ArrivingRows
from penstock.taskmanager.exchange.rows import MARKER, encode_buffer
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.look_up import (
    LookUp,
    LookUpAnswer,
    decode_look_up_answer,
    encode_look_up,
    is_look_up,
)
from penstock.taskmanager.protocol import EpochCommand, decode_ack, encode_ack, encode_command
from penstock.taskmanager.stream_task import _MARK, StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.worker import ManualClock

SLOTS, ATTEMPT = 2, 4


class Awkward:
    """A class that cannot be stored."""


class Kept(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        newest = ValueStateDescriptor("newest")
        newest.set_queryable("newest")
        self.newest = runtime_context.get_state(newest)

    def process_element(self, value: int, ctx: Any) -> Any:
        if value == 99:
            raise RuntimeError("no")
        self.newest.update(Awkward() if value == 98 else value)
        return iter(())


def graph() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda v: v).process(Kept()).uid("kept").print()
    return JobGraphBuilder(env.get_program().transformations, name="job", parallelism=SLOTS, max_parallelism=8).build()


KEY = next(n for n in range(9) if subtask_for_key_group(key_group(n, 8), SLOTS, 8) == 0)
OTHER = next(n for n in range(9) if subtask_for_key_group(key_group(n, 8), SLOTS, 8) == 1)


class Control:
    """A control connection with waiting frames, which stores the frames of the task."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.answers: list[LookUpAnswer] = []
        self.failures: list[str] = []
        self.is_lost = False

    def poll(self, timeout_s: float | None = 0.0, also: tuple[int, ...] = ()) -> bytes | None:
        if self.is_lost:
            raise ConnectionResetError
        return self.waiting.pop(0) if self.waiting else None

    def send(self, frame: bytes) -> None:
        if is_look_up(frame):
            self.answers.append(decode_look_up_answer(frame))
        elif (failure := decode_ack(frame).failure) is not None:
            self.failures.append(failure.message)

    def fileno(self) -> int:
        return 0

    def close(self) -> None: ...


class Rows(ArrivingRows):
    """The rows of a list. An item that is not a row is called."""

    def __init__(self, *rows: Any) -> None:
        self._rows = iter(rows)

    def __next__(self) -> bytes:
        while not isinstance(row := next(self._rows), bytes):
            row()
        return row


def look_up_frame(key: Any, attempt: int = ATTEMPT, state: str = "newest", uid: str = "kept") -> bytes:
    return encode_look_up(LookUp(1, attempt, uid, state, UNTYPED_KEYS.encode(key)))


def first_markers() -> list[bytes]:
    head = _MARK.pack(MARKER, 0, 0) + encode_command(EpochCommand(ATTEMPT, 0, is_first=True))
    return [head, _MARK.pack(MARKER, 1, 0)]


def answers_to(*frames: bytes, value: Any = None, ready: bool = True) -> tuple[list[LookUpAnswer], Control]:
    """Return the answers of the first subtask. It sleeps after it gets a value of `KEY`."""
    job, control = graph(), Control()
    rows: list[Any] = [*first_markers()] if ready else []
    if value is not None:
        batch = RowBatch([value], None)
        rows.append(encode_buffer(job.exchanges[0].id, 0, 0, MIN_TIMESTAMP, False, batch))
    stream = Rows(*rows, lambda: control.waiting.extend(frames), TICK_ROW)
    made: Any = control
    for _ in StreamTask(LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, ManualClock())), made, 0.0, stream).run(
        stream
    ):
        pass
    return control.answers, control


def test_a_sleeping_task_answers_all_waiting_look_ups() -> None:
    answers, _ = answers_to(*[look_up_frame(KEY)] * 3, look_up_frame("nothing"), value=KEY)
    found = [answer.found for answer in answers if answer.found is not None and answer.found.items]
    rows = [row_of(KEY, "newest", one) for one in found]
    assert [row.value for row in rows if row is not None] == [KEY] * 3
    assert len(answers) >= 3


@pytest.mark.parametrize(
    ("frame", "says", "later"),
    [
        (look_up_frame(KEY, attempt=3), "attempt 3 is over", True),
        (look_up_frame(OTHER), "another subtask has the key", True),
        (look_up_frame(KEY, state="else"), "has not used the state yet", True),
        (look_up_frame(KEY, uid="else"), "the task is starting", True),
    ],
)
def test_a_look_up_that_the_task_cannot_answer_is_refused(frame: bytes, says: str, later: bool) -> None:
    ((answer,), control) = answers_to(frame, value=KEY)
    assert says in answer.refusal
    assert (answer.found, answer.is_later) == (None, later)
    assert control.failures == []


def test_look_ups_have_no_answer_before_the_state_is_restored() -> None:
    ((answer,), _) = answers_to(look_up_frame(KEY), ready=False)
    assert answer.is_later


def test_a_turn_ends_after_some_ms_and_the_waiting_look_ups_get_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if no more frames arrive, because the waiting look-ups have already been received."""
    from penstock.state.hashmap.backend import HashMapStateBackend

    peek = HashMapStateBackend.peek

    def slow(self: HashMapStateBackend, state: str, key: object) -> Any:
        time.sleep(stream_task._LOOK_UPS_S)
        return peek(self, state, key)

    monkeypatch.setattr(HashMapStateBackend, "peek", slow)
    job, control = graph(), Control()
    seen: list[tuple[int, float | None]] = []

    def note() -> None:
        seen.append((len(control.answers), stream.patience()))

    ticks = [part for _ in range(8) for part in (TICK_ROW, note)]
    stream = Rows(*first_markers(), lambda: control.waiting.extend([look_up_frame(KEY)] * 8), *ticks)
    made: Any = control
    for _ in StreamTask(LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, ManualClock())), made, 0.0, stream).run(
        stream
    ):
        pass
    counts = [0, *(count for count, _ in seen)]
    assert max(after - before for before, after in pairwise(counts)) <= 2  # including the turn of the timers
    assert counts[-1] == 8
    assert all(patience == 0.0 for count, patience in seen if count < 8)
    assert seen[-1][1] != 0.0


def test_a_source_reads_between_slow_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_task, "_LOOK_UPS_S", 0.0)
    job, control = graph(), Control()
    task = LevelTask(job, 0, 0, TaskEnvironment("job", "job", 1, ManualClock()))
    turns: list[int] = []
    take_output = task.take_output
    monkeypatch.setattr(task, "take_output", lambda: turns.append(len(control.answers)) or take_output())
    control.waiting = [look_up_frame(KEY)] * 5 + [encode_command(EpochCommand(ATTEMPT, 1, terminate=True))]
    first = b"\0" + encode_command(EpochCommand(ATTEMPT, 0, is_first=True))
    made: Any = control
    for _ in StreamTask(task, made).run(iter([first])):
        pass
    assert len(control.answers) == 5
    assert sorted(set(turns)) == [0, 1, 2, 3, 4, 5]


def test_a_failed_task_does_not_answer_look_ups() -> None:
    job = graph()
    task = LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, ManualClock()))
    task.begin(EpochCommand(ATTEMPT, 0, is_first=True))
    assert task.answer_look_up(msgspec.msgpack.decode(look_up_frame(KEY)[1:], type=LookUp)).found is not None
    for _ in task.process(encode_buffer(job.exchanges[0].id, 0, 0, MIN_TIMESTAMP, False, RowBatch([99], None))):
        pass
    answer = task.answer_look_up(msgspec.msgpack.decode(look_up_frame(KEY)[1:], type=LookUp))
    assert (answer.found, answer.is_later, answer.refusal) == (None, True, "the task has failed")


def test_a_look_up_never_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.state.hashmap.backend import HashMapStateBackend

    def broken(self: object, state: str, key: object) -> None:
        raise ZeroDivisionError("in a user type")

    monkeypatch.setattr(HashMapStateBackend, "peek", broken)
    ((answer,), control) = answers_to(look_up_frame(KEY), value=KEY)
    assert answer.refusal == "ZeroDivisionError: in a user type"
    assert control.failures == []


def test_a_lost_connection_ends_only_the_look_ups() -> None:
    """The sources of a task notice that the JobManager is gone."""
    job, control = graph(), Control()

    def lose() -> None:
        control.is_lost = True

    stream = Rows(*first_markers(), lose, TICK_ROW, TICK_ROW)
    made: Any = control
    task = StreamTask(LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, ManualClock())), made, 0.0, stream)
    assert len(stream.also()) == 1
    for _ in task.run(stream):
        pass
    assert stream.also() == ()


def test_frames_of_look_ups_differ_from_all_others() -> None:
    assert is_look_up(look_up_frame(1))
    assert not is_look_up(encode_command(EpochCommand(1, 0)))
    task = LevelTask(graph(), 1, 0, TaskEnvironment("job", "job", 1, ManualClock()))
    assert not is_look_up(encode_ack(task.brief_ack()))
