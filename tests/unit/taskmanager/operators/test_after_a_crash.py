"""Results after a crash equal those of a run without one: the same values of the same types, on both backends.

An operator processes a fixed input. One run has no interruption. The other takes a snapshot at some point and is
restored at another parallelism. It gets watermarks from the beginning again, as a restarted source sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.typeinfo import Types
from penstock.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from penstock.functions.state.state_joins import AsOf
from penstock.graph import operations
from penstock.graph.operations import Operation
from penstock.records.batch import MAX_TIMESTAMP
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.sessions import EventTimeSessionWindows
from penstock.windowing.time_windows import TumblingEventTimeWindows
from penstock.windowing.trigger import EventTimeTrigger
from penstock.windowing.trigger_library import CountTrigger
from penstock.windowing.window_function import WindowFunctionSpec

KEY = itemgetter(0)
SEEN = ValueStateDescriptor("seen", int, default=0)
Record = tuple[Any, int]


class EmitKeyAndClock(KeyedProcessFunction):
    """A function that emits each key and the clock that it sees."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.seen.update(self.seen.value() + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 15)
        yield "record", ctx.get_current_key(), ctx.timestamp() < ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), self.seen.value(), timestamp


class EmitWithBroadcast(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        self.seen.update(self.seen.value() + 1)
        yield "record", ctx.get_current_key()

    def process_broadcast_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        keys: list[Any] = []
        ctx.apply_to_keyed_state(SEEN, lambda key, state: keys.append((key, state.value())))
        yield from sorted(keys, key=repr)


class EmitWindow(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Any) -> Iterator[Any]:
        yield key, context.window().max_timestamp(), [number for _, number in elements]


class EmitPair(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left, right


def window(assigner: Any, trigger: Any = None) -> Callable[[], Operation]:
    def operation() -> Operation:
        by = EventTimeTrigger.create() if trigger is None else trigger
        return operations.Window(assigner, WindowFunctionSpec.process(EmitWindow()), by, KEY)

    return operation


OPERATIONS: dict[str, tuple[Callable[[], Operation], int]] = {
    "process": (lambda: operations.Process(EmitKeyAndClock(), KEY), 1),
    "broadcast": (lambda: operations.BroadcastProcess(EmitWithBroadcast(), KEY, (MapStateDescriptor("rules"),)), 2),
    "tumbling": (window(TumblingEventTimeWindows.of(20)), 1),
    "sessions": (window(EventTimeSessionWindows.with_gap(10)), 1),
    "counted": (window(TumblingEventTimeWindows.of(20), CountTrigger(2)), 1),
    "interval join": (lambda: operations.IntervalJoin(EmitPair(), (KEY, KEY), lower_ms=-20, upper_ms=20), 2),
    "as-of join": (lambda: operations.CoProcess(AsOf(lambda a, b: (a, b), (None, None), 30), (KEY, KEY)), 2),
    "as-of join without bound": (
        lambda: operations.CoProcess(AsOf(lambda a, b: (a, b), (None, None), None), (KEY, KEY)),
        2,
    ),
}

Step = tuple[int, list[Record], list[int], int]
"""Input, records, their times, and the watermark after them."""


def results(
    make: Callable[[], Operation], steps: list[Step], backend: str, crash: int | None, to: str | None = None
) -> list[str]:
    """Return the output of an operator with its types. A crash happens after `crash` steps."""
    run = OperatorRun(create_operator(make()), backend=backend)
    found: list[Any] = []
    try:
        for number, (side, values, times, watermark) in enumerate(steps):
            if number == crash:
                run.backend_name = to or backend
                found += run.results
                run = run.restart(create_operator(make()))
                run.watermark(min(step[3] for step in steps) - 1000)
            run.push(*values, at=times, to=side)
            run.watermark(watermark)
        run.watermark(MAX_TIMESTAMP)
        found += run.results
        return sorted(repr(result) for result in found)
    finally:
        run.close()


KEYS: list[Any] = [
    True, False, 1, 0, 2.0, 2.5, -0.0, Decimal("3.0"), Decimal("0.10"), np.int64(5), np.float64(1.5), np.str_("x"),
    "a", b"a", None, 1 << 70, float(1 << 70), (1, True), ("a", 2.0), (np.int64(1), None), frozenset({1.0}),
    datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1),
]  # fmt: skip


@st.composite
def inputs(draw: st.DrawFn, sides: int) -> list[Step]:
    steps, watermark = [], 0
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
    for number in range(draw(st.integers(2, 6))):
        watermark += draw(st.sampled_from([0, 10, 25]))
        count = draw(st.integers(1, 4))
        values = [(draw(st.sampled_from(keys)), number * 10 + place) for place in range(count)]
        times = [draw(st.integers(max(0, watermark - 30), watermark + 30)) for _ in values]
        steps.append((draw(st.integers(0, sides - 1)), values, times, watermark))
    return steps


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_crash_changes_neither_results_nor_their_types(name: str, data: st.DataObject) -> None:
    make, sides = OPERATIONS[name]
    steps = data.draw(inputs(sides))
    crash = data.draw(st.integers(0, len(steps) - 1))
    calm = results(make, steps, "hashmap", None)
    assert results(make, steps, "hashmap", crash) == calm


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_the_backend_changes_neither_results_nor_their_types(name: str, data: st.DataObject) -> None:
    make, sides = OPERATIONS[name]
    steps = data.draw(inputs(sides))
    crash = data.draw(st.integers(0, len(steps) - 1))
    calm = results(make, steps, "hashmap", None)
    assert results(make, steps, "rocksdb", crash) == calm
    assert results(make, steps, "hashmap", crash, "rocksdb") == calm
    assert results(make, steps, "rocksdb", crash, "hashmap") == calm


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_every_key_has_the_same_text_before_and_after_a_restore(key: Any) -> None:
    make, _ = OPERATIONS["process"]
    steps: list[Step] = [(0, [(key, 1)], [10], 5), (0, [(key, 2)], [11], 12)]
    calm = results(make, steps, "hashmap", None)
    assert {line.partition(",")[2] for line in calm}
    assert results(make, steps, "hashmap", 1) == calm
    assert results(make, steps, "rocksdb", 1) == calm


class Place(NamedTuple):
    city: str
    zone: float


@pytest.mark.parametrize(
    ("declared", "key", "shown"),
    [
        (bool, True, True),
        (bool, 1, True),
        (float, 2, 2.0),
        (Decimal, Decimal("3.0"), Decimal(3)),
        (Types.BOOLEAN(), True, True),
        (Place, Place("a", 1.0), Place("a", 1.0)),
        (tuple[str, float], ("a", 1), ("a", 1.0)),
    ],
)
def test_a_key_of_a_declared_type_has_that_type_in_a_function(declared: Any, key: Any, shown: Any) -> None:
    from penstock.testing import OperatorHarness

    for backend in ("hashmap", "rocksdb"):
        with OperatorHarness(EmitKeyAndClock(), KEY, declared, backend=backend) as harness:
            harness.push((key, 1), timestamp=5)
            harness.restore(harness.snapshot())
            harness.push((key, 2), timestamp=6)
            harness.advance_watermark(100)
            assert [repr(each[1]) for each in harness.outputs()] == [repr(shown)] * 4, backend


class EmitMapKeys(KeyedBroadcastProcessFunction):
    """A function that emits the keys of a map of the current key, and of a broadcast map."""

    def open(self, runtime_context: Any) -> None:
        self.entries = runtime_context.get_map_state(MapStateDescriptor("entries"))

    def process_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        self.entries.put(value[1], 0)
        yield list(self.entries.keys()), list(self.entries.items()), list(self.entries)

    def process_broadcast_element(self, value: Record, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(MapStateDescriptor("rules"))
        rules.put(value[1], 0)
        yield list(rules.keys()), list(rules.items()), list(rules)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_every_key_of_a_map_has_the_same_text_before_and_after_a_restore(key: Any) -> None:
    def make() -> Operation:
        return operations.BroadcastProcess(EmitMapKeys(), KEY, (MapStateDescriptor("rules"),))

    steps: list[Step] = [(side, [("k", key)], [10], number) for number, side in enumerate((0, 1, 0, 1))]
    calm = results(make, steps, "hashmap", None)
    assert results(make, steps, "hashmap", 2) == calm
    assert results(make, steps, "rocksdb", 2) == calm


def test_late_records_of_an_interval_join_are_late_after_a_restore() -> None:
    make, _ = OPERATIONS["interval join"]
    steps: list[Step] = [
        (0, [("k", 1)], [100], 90),
        (1, [("k", 2)], [100], 95),
        (1, [("k", 3), ("k", 4)], [85, 90], 95),
    ]
    assert len(results(make, steps, "hashmap", None)) == 1
    assert len(results(make, steps, "hashmap", 2)) == 1


def test_late_records_of_an_as_of_join_are_late_after_a_restore() -> None:
    make, _ = OPERATIONS["as-of join"]
    steps: list[Step] = [(1, [("k", 1)], [80], 90), (0, [("k", 2)], [85], 95)]
    assert results(make, steps, "hashmap", None) == results(make, steps, "hashmap", 1) == []
