"""Functions with checkpointed state: the state survives crashes and rescales, and functions learn the outcome of
checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from penstock.common.typeinfo import Types
from penstock.connectors.core.function import FunctionSource
from penstock.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListCheckpointed,
    MapFunction,
    ParallelSourceFunction,
    ProcessWindowFunction,
    SinkFunction,
    SourceFunction,
)
from penstock.testing import JobHarness


class Buffer(FlatMapFunction, CheckpointedFunction):
    """A function that emits its values in groups of three."""

    def __init__(self, *, union: bool = False) -> None:
        self.union = union
        self.pending: list[int] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.stored = (store.get_union_list_state if self.union else store.get_list_state)("pending", int)
        if context.is_restored():
            self.pending = list(self.stored)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        assert context.get_checkpoint_id() > 0
        assert context.get_checkpoint_timestamp() >= 0
        self.stored[:] = self.pending

    def flat_map(self, value: int) -> Iterator[list[int]]:
        self.pending.append(value)
        if len(self.pending) == 3:
            yield self.pending
            self.pending = []


@pytest.mark.parametrize(
    "declared", [None, Types.LIST(Types.LONG()), Types.ROW([Types.INT(), Types.INT(), Types.INT()])]
)
def test_state_of_a_function_survives_a_crash(declared: Any) -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").flat_map(Buffer(), declared), "threes")
        harness.push("numbers", 1, 2)
        harness.run()
        harness.snapshot()
        harness.crash()
        harness.push("numbers", 3)
        assert [list(three) for three in harness.outputs("threes")] == [[1, 2, 3]]


def test_values_after_the_snapshot_are_not_in_the_state() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").flat_map(Buffer()), "threes")
        harness.push("numbers", 1)
        harness.run()
        harness.snapshot()
        harness.push("numbers", 2)
        harness.run()
        harness.crash()
        harness.push("numbers", 3)
        assert harness.outputs("threes") == [[1, 2, 3]]


class Held(MapFunction, ListCheckpointed):
    """A function that emits all values so far."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[int]:
        return self.seen

    def restore_state(self, state: list[int]) -> None:
        self.seen = list(state)

    def map(self, value: int) -> tuple[int, ...]:
        self.seen.append(value)
        return tuple(self.seen)


def test_a_list_checkpointed_function_gets_its_list_again() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").map(Held()), "seen")
        harness.push("numbers", 1, 2)
        harness.run()
        harness.snapshot()
        harness.crash()
        harness.push("numbers", 3)
        assert harness.outputs("seen")[-1] == (1, 2, 3)


@pytest.mark.parametrize(("union", "expected"), [(False, 4), (True, 6)])
def test_a_rescale_distributes_list_state_and_gives_union_state_to_all(union: bool, expected: int) -> None:
    with JobHarness(parallelism=1) as harness:
        counts = harness.source("numbers").rebalance().map(Count(union=union))
        harness.collect(counts, "counts")
        harness.push("numbers", 0, 0)
        harness.run()
        harness.rescale(2)
        harness.take("counts")
        harness.push("numbers", 0, 0)
        harness.run()
        assert sum(harness.take("counts")) == expected


class Count(MapFunction, CheckpointedFunction):
    """A function that emits the number of items in its state. Each value is one item."""

    def __init__(self, *, union: bool) -> None:
        self.union = union

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.items = (store.get_union_list_state if self.union else store.get_list_state)("items", int)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Do nothing, because the list is the state itself."""

    def map(self, value: int) -> int:
        self.items.append(value)
        return len(self.items)


HEARD: list[tuple[str, int]] = []


class Listener(FilterFunction, CheckpointListener):
    def filter(self, value: int) -> bool:
        return True

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        HEARD.append(("complete", checkpoint_id))


def test_a_listener_is_notified_of_a_complete_checkpoint() -> None:
    HEARD.clear()
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").filter(Listener()), "numbers out")
        harness.push("numbers", 1)
        harness.run()
        harness.snapshot()
        harness.push("numbers", 2)
        harness.run()
        assert [event for event, _ in HEARD] == ["complete"]


class Windows(ProcessWindowFunction[Any, Any, Any, Any], CheckpointedFunction):
    """A function that numbers its results over all keys."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.count = context.get_operator_state_store().get_list_state("count", int)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Do nothing, because the list is the state itself."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> list[Any]:
        self.count.append(1)
        return [(len(self.count), list(elements))]


def test_a_window_function_may_have_checkpointed_state() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").key_by(lambda value: value).count_window(2).process(Windows()), "out")
        harness.push("numbers", 1, 1, 2)
        harness.run()
        harness.snapshot()
        harness.crash()
        harness.push("numbers", 2)
        assert harness.outputs("out") == [(1, [1, 1]), (2, [2, 2])]


class Written(SinkFunction, CheckpointedFunction, CheckpointListener):
    """A sink that numbers its values across a crash."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.count = context.get_operator_state_store().get_list_state("count", int)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Do nothing, because the list is the state itself."""

    def invoke(self, value: int) -> None:  # type: ignore[override]
        self.count.append(value)
        HEARD.append(("written", len(self.count)))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        HEARD.append(("complete", checkpoint_id))


def test_a_sink_function_may_have_checkpointed_state() -> None:
    HEARD.clear()
    with JobHarness() as harness:
        harness.source("numbers").add_sink(Written())
        harness.push("numbers", 1)
        harness.run()
        harness.snapshot()
        harness.crash()
        harness.push("numbers", 2)
        harness.run()
    assert [number for event, number in HEARD if event == "written"] == [1, 2]


GATE = threading.Event()
"""Event that releases the values from five upwards."""


class Offsets(ParallelSourceFunction, CheckpointedFunction):
    """A source that counts to ten, starting at the number in its list state or union list state."""

    def __init__(self, *, union: bool) -> None:
        self.union = union
        self.next = 0

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.stored = (store.get_union_list_state if self.union else store.get_list_state)("offsets", int)
        if context.is_restored():
            assert len(self.stored) == 1
            self.next = self.stored[0]

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.stored[:] = [self.next]

    def run(self, ctx: Any) -> None:
        while self.next < 10:
            if self.next == 5 and not GATE.wait(0.01):
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.next)
                self.next += 1

    def cancel(self) -> None:
        self.next = 10


class Listed(SourceFunction, ListCheckpointed):
    """The same source with the state of `ListCheckpointed`."""

    next = 0

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        return [self.next]

    def restore_state(self, state: list[Any]) -> None:
        [self.next] = state

    run = Offsets.run
    cancel = Offsets.cancel


@pytest.mark.parametrize(
    "function", [Offsets(union=False), Offsets(union=True), Listed()], ids=["list", "union", "plain"]
)
def test_a_source_function_may_have_checkpointed_state(function: Any) -> None:
    """The function loses or repeats no value after a crash and a rescale."""
    GATE.clear()
    instances = 2 if isinstance(function, ParallelSourceFunction) else 1
    with JobHarness(2) as harness:
        numbers = harness.environment().from_source(FunctionSource(function, bounded=True), None, "numbers")
        harness.collect(numbers.uid("numbers"), "out")
        until = time.monotonic() + 20
        while len(harness.outputs("out")) < 5 * instances and time.monotonic() < until:
            harness.advance_processing_time(by=1)
        harness.snapshot()
        harness.crash()
        harness.rescale(3)
        GATE.set()
        while len(harness.outputs("out")) < 10 * instances and time.monotonic() < until:
            harness.advance_processing_time(by=1)
        assert sorted(harness.outputs("out")) == sorted(list(range(10)) * instances)
