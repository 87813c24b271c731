"""A task of the pipelined runner never sleeps while it has work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.functions import CoMapFunction, KeyedProcessFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.taskmanager.exchange.rows import MARKER, TICK, encode_buffer, exchange_of
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.taskmanager.protocol import EpochCommand, SplitAssignment, encode_command
from penstock.taskmanager.stream_task import _MARK, StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.worker import ManualClock

DUE_MS = 1000
TICK_ROW = bytes((TICK,))


class Bursts(KeyedProcessFunction):
    """A function with a timer for every record, which emits many results."""

    def __init__(self, count: int) -> None:
        self.count = count

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        ctx.timer_service().register_processing_time_timer(DUE_MS)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        yield from range(self.count)


def built(env: StreamExecutionEnvironment) -> JobGraph:
    return JobGraphBuilder(env.get_program().transformations, name="job", parallelism=1, max_parallelism=8).build()


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")


def sent_by(level: LevelTask, *rows: bytes | Callable[[], None]) -> list[int]:
    """Return the exchanges of the rows that the task sends while it gets `rows` after its first marker. Callables are
    called."""
    control = cast("Any", SimpleNamespace(send=lambda frame: None, close=lambda: None))

    def arriving() -> Iterator[bytes]:
        yield _MARK.pack(MARKER, 0, 0) + encode_command(EpochCommand(1, 0, is_first=True))
        for row in rows:
            if isinstance(row, bytes):
                yield row
            else:
                row()

    task = StreamTask(level, control, 0.0)
    sent = [exchange_of(row) for _, row in task.run(arriving()) if row and row[0] != MARKER]
    assert level.failure is None
    assert task._patience() is None
    return sent


class Later(ManualClock):
    """A clock that advances to the due time of the timer. The task then checks its timers again."""

    def __call__(self) -> None:
        self.set(DUE_MS)
        time.sleep(0.025)


class Same(CoMapFunction):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


def buffer(exchange: int, value: int) -> bytes:
    return encode_buffer(exchange, 0, 0, MIN_TIMESTAMP, False, RowBatch([value], None))


@pytest.mark.parametrize("count", [1, 64, 5000])
def test_results_of_a_timer_are_sent_in_the_tick_that_fires_it(count: int) -> None:
    """Records that fill a buffer are sent immediately, without a flush."""
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers(env).key_by(lambda v: 0).process(Bursts(count)).key_by(lambda v: v).map(lambda v: v).print()
    job, clock = built(env), Later()
    level = LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, clock))
    sent = sent_by(level, buffer(job.exchanges[0].id, 1), clock, TICK_ROW)
    assert set(sent) == {job.exchanges[1].id}


def test_forwarded_rows_do_not_prevent_a_timer_from_firing() -> None:
    """If rows for a deeper level are always available, no tick occurs."""
    env = StreamExecutionEnvironment.get_execution_environment()
    source = numbers(env)
    timed = source.key_by(lambda v: 0).process(Bursts(1)).key_by(lambda v: v)
    timed.connect(source.key_by(lambda v: v)).map(Same()).print()
    job, clock = built(env), Later()
    passed = next(e.id for e in job.exchanges if e.level == 2 and job.stages[e.source_stage].level == 0)
    own = next(e.id for e in job.exchanges if e.level == 1)
    level = LevelTask(job, 1, 0, TaskEnvironment("job", "job", 1, clock))
    assert level.passes_through(passed)
    assert not level.receives(passed)
    sent = sent_by(level, buffer(own, 1), clock, buffer(passed, 1), buffer(passed, 2))
    assert sent.count(passed) == 2
    assert len(sent) == 3


def test_a_watermark_generator_is_called_without_a_second_record() -> None:
    class Late:
        def on_event(self, event: Any, timestamp: int, output: Any = None) -> None: ...

        def on_periodic_emit(self, output: Any = None) -> int:
            return 5

    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_generator(Late).with_timestamp_assigner(lambda v: v)  # type: ignore[arg-type]
    env.from_source(DataGeneratorSource(lambda n: n, records_per_second=0.01), strategy, "slow").print()
    job = built(env)
    level = LevelTask(job, 0, 0, TaskEnvironment("job", "job", 1, ManualClock()))
    node = next(node for node in job.operators if node.source is not None)
    enumerator = node.source.create_enumerator()
    split = enumerator.discover()[0]
    assignments = {node.uid: [SplitAssignment(split.id, split.properties)]}
    level.begin(EpochCommand(1, 0, is_first=True, assignments=assignments))
    for subtask, reader in level.readers(1 << 62):
        while level.read_step(subtask, reader):
            pass
    assert level.failure is None
    assert level.next_wake() == 200


def test_a_writer_without_the_base_class_is_called_every_second() -> None:
    operator = SinkOperator(cast("Any", None))
    operator._writer = cast("Any", SimpleNamespace())
    operator.context = cast("Any", SimpleNamespace(clock=ManualClock(500)))
    assert operator.next_wake() == 1500
