"""Every call of a user's function in a keyed operator has the key of its record as the current key.

Each scenario runs one operator in one subtask, with alternating records of three keys. The function counts its calls in
keyed state. The count that a call sees must be the number of calls so far for its key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.errors import PenstockError
from penstock.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.functions.state.checkpointed import CheckpointedFunction, CheckpointListener
from penstock.graph import operations
from penstock.graph.operations import Operation
from penstock.records.batch import ColumnBatch, RowBatch
from penstock.records.columns import rows_as_tuples
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.state.owners import FUNCTION
from penstock.taskmanager.operators.factory import create_operator, operator_of
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.count_windows import GlobalWindows
from penstock.windowing.evictor import CountEvictor
from penstock.windowing.sessions import EventTimeSessionWindows
from penstock.windowing.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.windowing.trigger import EventTimeTrigger
from penstock.windowing.trigger_library import CountTrigger, PurgingTrigger
from penstock.windowing.window_function import WindowFunctionSpec

KEY = itemgetter(0)
KEYS = "abc"
SEEN = ValueStateDescriptor("seen", int, default=0)
Record = tuple[str, int]


class Counting(Function):
    """A function that counts calls per key in keyed state. It records the key and the count of each call."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(SEEN)
        self.calls: list[tuple[str, int]] = []

    def count(self, key: str) -> None:
        counted = self.seen.value() + 1  # type: ignore[operator]
        self.seen.update(counted)
        self.calls.append((key, counted))

    def keys_counted(self) -> None:
        """Fail unless the calls for each key have the counts 1, 2, 3 ..."""
        assert {key for key, _ in self.calls} == set(KEYS), "the function was not called for each key"
        found = defaultdict(list)
        for key, counted in self.calls:
            found[key].append(counted)
        assert found == {key: list(range(1, len(counts) + 1)) for key, counts in found.items()}


class CountingMap(Counting, MapFunction):
    def map(self, value: Record) -> Record:
        self.count(value[0])
        return value


class CountingFlatMap(Counting, FlatMapFunction):
    def flat_map(self, value: Record) -> Iterator[Record]:
        self.count(value[0])
        yield value
        self.count(value[0])
        yield value


class CountingFilter(Counting, FilterFunction):
    def filter(self, value: Record) -> bool:
        self.count(value[0])
        return value[1] % 2 == 0


class CountingReduce(Counting, ReduceFunction):
    def reduce(self, value1: Record, value2: Record) -> Record:
        self.count(value2[0])
        assert value1[0] == value2[0]
        return value2


class CountingAggregate(Counting, AggregateFunction):
    """A function whose accumulator is the key of its records. An empty accumulator has no key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.created = runtime_context.get_state(ValueStateDescriptor("created", int, default=0))
        self.made = 0

    def create_accumulator(self) -> str:
        self.created.update(self.created.value() + 1)  # type: ignore[operator]
        self.made += 1
        return ""

    def add(self, value: Record, accumulator: str) -> str:
        self.count(value[0])
        return value[0]

    def get_result(self, accumulator: str) -> str:
        self.count(accumulator)
        return accumulator

    def merge(self, acc_a: str, acc_b: str) -> str:
        self.count(acc_a or acc_b)
        return acc_a or acc_b


class CountingProcess(Counting, KeyedProcessFunction):
    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterator[Record]:
        self.count(value[0])
        assert ctx.get_current_key() == value[0]
        ctx.timer_service().register_event_time_timer(value[1] * 10)
        ctx.timer_service().register_processing_time_timer(value[1] * 10)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        self.count(ctx.get_current_key())


class CountingCo(Counting, CoMapFunction, CoFlatMapFunction):
    def map1(self, value: Record) -> Record:
        self.count(value[0])
        return value

    def map2(self, value: Record) -> Record:
        self.count(value[0])
        return value

    def flat_map1(self, value: Record) -> Iterator[Record]:
        self.count(value[0])
        yield value

    def flat_map2(self, value: Record) -> Iterator[Record]:
        self.count(value[0])
        yield value


class CountingCoProcess(Counting, CoProcessFunction):
    def process_element1(self, value: Record, ctx: CoProcessFunction.Context) -> None:
        self.count(value[0])
        ctx.timer_service().register_event_time_timer(value[1] * 10)

    def process_element2(self, value: Record, ctx: CoProcessFunction.Context) -> None:
        self.count(value[0])

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        self.count(ctx.get_current_key())


class CountingJoin(Counting, ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: ProcessJoinFunction.Context) -> None:
        assert left[0] == right[0]
        self.count(left[0])


class CountingBroadcast(Counting, BroadcastProcessFunction):
    def process_element(self, value: Record, ctx: Any) -> None:
        self.count(value[0])

    def process_broadcast_element(self, value: Record, ctx: Any) -> None:
        def once_more(key: str, state: Any) -> None:
            assert state.value() == self.seen.value()
            self.count(key)

        ctx.apply_to_keyed_state(SEEN, once_more)
        with pytest.raises(PenstockError, match="no key"):
            self.seen.value()


class CountingWindow(Counting, ProcessWindowFunction):
    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Any) -> list[int]:
        self.count(key)
        return [len(list(elements))]

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        self.count(context.get_current_key())  # type: ignore[attr-defined]


@dataclass
class Scenario:
    name: str
    operation: Callable[[], Operation]
    inputs: int = 1

    @property
    def is_window(self) -> bool:
        return isinstance(self.operation(), operations.Window)


def windowed(
    name: str,
    assigner: Any,
    spec: Callable[[], WindowFunctionSpec],
    trigger: Any = None,
    evictor: Any = None,
    lateness: int = 0,
) -> Scenario:
    def operation() -> Operation:
        by = EventTimeTrigger.create() if trigger is None else trigger
        return operations.Window(assigner, spec(), by, KEY, evictor, lateness)

    return Scenario(f"window-{name}", operation)


def window_scenarios() -> Iterator[Scenario]:
    specs: dict[str, Callable[[], WindowFunctionSpec]] = {
        "reduce": lambda: WindowFunctionSpec.reduce(CountingReduce()),
        "reduce-and-function": lambda: WindowFunctionSpec.reduce(CountingReduce(), CountingWindow()),
        "aggregate": lambda: WindowFunctionSpec.aggregate(CountingAggregate()),
        "aggregate-and-function": lambda: WindowFunctionSpec.aggregate(CountingAggregate(), CountingWindow()),
        "process": lambda: WindowFunctionSpec.process(CountingWindow()),
        "columns-and-function": lambda: WindowFunctionSpec.aggregate(FieldAggregate.sum(1), CountingWindow()),
    }
    for kind, spec in specs.items():
        yield windowed(f"tumbling-{kind}", TumblingEventTimeWindows.of(20), spec)
        yield windowed(f"tumbling-late-{kind}", TumblingEventTimeWindows.of(20), spec, lateness=60)
        yield windowed(f"sliding-{kind}", SlidingEventTimeWindows.of(40, 20), spec)
        yield windowed(f"sessions-{kind}", EventTimeSessionWindows.with_gap(15), spec)
        yield windowed(f"sessions-late-{kind}", EventTimeSessionWindows.with_gap(15), spec, lateness=60)
        yield windowed(f"custom-{kind}", TumblingEventTimeWindows.of(20), spec, CountTrigger(2))
        yield windowed(f"evicted-{kind}", TumblingEventTimeWindows.of(20), spec, evictor=CountEvictor.of(5))
        yield windowed(f"count-{kind}", GlobalWindows.create(), spec, PurgingTrigger.of(CountTrigger(2)))
        yield windowed(f"global-{kind}", GlobalWindows.create(), spec)


WINDOWS = [*window_scenarios()]
SCENARIOS = [
    Scenario("map", lambda: operations.Map(CountingMap(), KEY)),
    Scenario("flat_map", lambda: operations.FlatMap(CountingFlatMap(), KEY)),
    Scenario("filter", lambda: operations.Filter(CountingFilter(), KEY)),
    Scenario("process", lambda: operations.Process(CountingProcess(), KEY)),
    Scenario("reduce", lambda: operations.Reduce(KEY, CountingReduce())),
    Scenario("co_map", lambda: operations.CoMap(CountingCo(), (KEY, KEY)), 2),
    Scenario("co_flat_map", lambda: operations.CoFlatMap(CountingCo(), (KEY, KEY)), 2),
    Scenario("co_process", lambda: operations.CoProcess(CountingCoProcess(), (KEY, KEY)), 2),
    Scenario(
        "interval_join", lambda: operations.IntervalJoin(CountingJoin(), (KEY, KEY), lower_ms=-20, upper_ms=20), 2
    ),
    Scenario(
        "broadcast", lambda: operations.BroadcastProcess(CountingBroadcast(), KEY, (MapStateDescriptor("rules"),)), 2
    ),
    *WINDOWS,
]
IN_BATCH_MODE = [
    Scenario(f"batch-{one.name}", lambda one=one: operations.InBatchMode(one.operation()), one.inputs)
    for one in SCENARIOS
]

WITHOUT_USER_CODE = {operations.RollingAggregate, operations.RollingFields}
"""Keyed operations that run only functions of the engine."""
NEVER_KEYED = {
    operations.Source,
    operations.Sink,
    operations.MapBatches,
    operations.Gather,
    operations.Project,
    operations.Select,
    operations.TimestampsAndWatermarks,
    operations.AsyncWait,
}


def test_every_operator_of_the_factory_has_a_scenario() -> None:
    made = set(operator_of.registry) - {object}
    walked = {type(one.operation()) for one in SCENARIOS + IN_BATCH_MODE}
    assert walked | WITHOUT_USER_CODE | NEVER_KEYED == made
    assert not walked & (WITHOUT_USER_CODE | NEVER_KEYED)


def batches(*, columns: bool) -> Iterator[RowBatch | ColumnBatch]:
    """Yield alternating records of three keys in several batches, including late ones."""
    numbers = [*range(10), 2, 9, 3, *range(10, 20)]
    for start in range(0, len(numbers), 4):
        values = [(key, number) for number in numbers[start : start + 4] for key in KEYS]
        times = [number * 10 for _, number in values]
        if columns:
            arrays = [pa.array([value[0] for value in values]), pa.array([value[1] for value in values])]
            record_batch = pa.RecordBatch.from_arrays(arrays, ["key", "number"])
            yield ColumnBatch(record_batch, np.array(times), rows_as_tuples)
        else:
            yield RowBatch(values, times)


WAYS = [
    *(pytest.param(one, "hashmap", "rows", id=one.name) for one in SCENARIOS + IN_BATCH_MODE),
    *(pytest.param(one, "hashmap", "columns", id=f"{one.name}-columns") for one in SCENARIOS),
    *(pytest.param(one, "rocksdb", "rows", id=f"{one.name}-rocksdb") for one in SCENARIOS if not one.is_window),
    *(pytest.param(one, "rocksdb", "rows", id=f"{one.name}-rocksdb") for one in WINDOWS if "aggregate-and" in one.name),
]


@pytest.mark.parametrize(("scenario", "backend", "form"), WAYS)
def test_a_count_per_key_counts_the_calls_of_that_key(scenario: Scenario, backend: str, form: str) -> None:
    operation = scenario.operation()
    run = OperatorRun(create_operator(operation), backend=backend)
    try:
        for number, batch in enumerate(batches(columns=form == "columns")):
            for to in range(scenario.inputs):
                run.push_batch(batch, to)
            run.watermark(number * 40)
            run.at_time(number * 40)
        run.snapshot()
        run.end()
        run.operator.finish()
        for _ in getattr(run.operator, "process_remaining", tuple)():
            pass
        counting = [fn for fn in operation.user_functions() if isinstance(fn, Counting)]
        assert counting
        check(counting, run)
    finally:
        run.close()


def check(functions: list[Counting], run: OperatorRun) -> None:
    calls = [call for function in functions for call in function.calls]
    if len(functions) == 1:
        functions[0].keys_counted()
    state, at = run.backend.get_state(SEEN, FUNCTION), run.backend.key_context
    for key, expected in Counter(key for key, _ in calls).items():
        at.key, at.namespace = key, None
        assert state.value() == expected, f"calls for {key!r}"
    for function in functions:
        if isinstance(function, CountingAggregate):
            created = run.backend.get_state(ValueStateDescriptor("created", int, default=0), FUNCTION)
            found = []
            for key in KEYS:
                at.key, at.namespace = key, None
                found.append(created.value())
            assert sum(found) == function.made
            assert len(set(found)) == 1, f"all keys have the same number of windows, but the accumulators are {found}"


class Careless(Counting, MapFunction, CheckpointedFunction, CheckpointListener):
    """A function that accesses keyed state in the given method, without a current record."""

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def _touch(self, moment: str) -> None:
        if moment == self._moment:
            self.seen.update(7)

    def initialize_state(self, context: Any) -> None:
        self.seen = context.get_state(SEEN)
        self._touch("initialize_state")

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._touch("open")

    def map(self, value: Record) -> Record:
        return value

    def snapshot_state(self, context: Any) -> None:
        self._touch("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._touch("notify_checkpoint_complete")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._touch("notify_checkpoint_aborted")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    "moment",
    ["initialize_state", "open", "snapshot_state", "notify_checkpoint_complete", "notify_checkpoint_aborted"],
)
def test_keyed_state_is_refused_without_a_current_record(backend: str, moment: str) -> None:
    with pytest.raises(PenstockError, match=f"{moment} has no current key"):
        run_life_cycle(moment, backend)


def run_life_cycle(moment: str, backend: str) -> None:
    run = OperatorRun(create_operator(operations.Map(Careless(moment), KEY)), backend=backend)
    try:
        run.push(("a", 1), ("b", 2))
        run.snapshot()
        run.operator.notify_checkpoint_complete(1)
        run.operator.notify_checkpoint_aborted(2)
    finally:
        run.close()
