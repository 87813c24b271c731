"""A single operator in its harness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.taskmanager.operators.aggregate.reduce import ReduceOperator
from penstock.taskmanager.operators.two_inputs.broadcast import KeyedBroadcastProcessOperator
from penstock.testing import OperatorHarness
from tests.unit.testing.functions import (
    HOUR,
    THRESHOLDS,
    DynamicThresholds,
    HighTemperatureCount,
    KeyedAndOperatorCounts,
    SelfCleaningAlert,
    add,
    first,
)

LATE = OutputTag("late")


def test_a_process_function_with_event_time_timers() -> None:
    with OperatorHarness(SelfCleaningAlert(), first, parallelism=2) as harness:
        harness.advance_watermark(0)
        harness.push(("a", 10.0), ("b", 5.0), timestamp=1)
        harness.push(("a", 20.0), timestamp=2)
        assert harness.outputs_with_timestamps() == [(("a", 20.0, 10.0), 2)]
        assert harness.state_size() > 0
        harness.advance_watermark(HOUR)
        assert harness.state_size() == 0
        assert harness.watermarks() == [0, HOUR]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_an_operator_is_restored_at_another_parallelism(parallelism: int) -> None:
    keys = [f"key-{n}" for n in range(30)]
    with OperatorHarness(ReduceOperator(add, first), parallelism=3) as harness:
        harness.push(*((key, 1) for key in keys))
        snapshot = harness.snapshot()
        harness.push(*((key, 1000) for key in keys))
        harness.take()
        harness.restore(snapshot, parallelism)
        harness.push(*((key, 10) for key in keys))
        assert sorted(harness.take()) == sorted((key, 11) for key in keys)


def test_operator_list_state_is_distributed() -> None:
    with OperatorHarness(HighTemperatureCount()) as harness:
        harness.push(*[("id", 121.0)] * 23)
        harness.restore(harness.snapshot(), 4)
        harness.take()
        harness.push(*[("id", 121.0)] * 4)
        assert sum(count for _, count in harness.take()) == 27


def test_a_broadcast_function_has_both_inputs() -> None:
    operator = KeyedBroadcastProcessOperator(DynamicThresholds(), [THRESHOLDS], first)
    with OperatorHarness(operator, parallelism=3) as harness:
        harness.push(("a", 1.5), ("b", 3.0), input_index=1)
        harness.push(("a", 10.0), ("b", 10.0))
        harness.push(("a", 20.0), ("b", 20.0))
        assert harness.outputs() == [("a", 20.0, 10.0)]


class Later(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + value[1])
        yield LATE, value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_processing_time()


def test_processing_time_timers_and_side_outputs_work() -> None:
    with OperatorHarness(Later(), first, parallelism=2, start_time=100) as harness:
        harness.push(("a", 50), ("b", 20))
        harness.advance_processing_time(to=119)
        assert harness.outputs() == []
        harness.advance_processing_time(to=1_000)
        assert harness.outputs() == [("b", 120, 120), ("a", 150, 150)]
        assert sorted(harness.side_outputs(LATE)) == [("a", 50), ("b", 20)]


class Station(NamedTuple):
    name: str


def test_keys_may_have_a_user_class() -> None:
    with OperatorHarness(KeyedAndOperatorCounts(), first, Station) as harness:
        harness.push((Station("KJFK"), 11.0))
        harness.restore(harness.snapshot())
        harness.push((Station("KJFK"), 12.0))
        assert harness.outputs()[1:] == [(Station("KJFK"), 2, 2)]


def test_a_keyed_function_needs_a_key() -> None:
    with pytest.raises(InvalidJob, match="Later is a KeyedProcessFunction"):
        OperatorHarness(Later())


def test_a_function_without_keys_gets_records_in_turn() -> None:
    class Where(ProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.subtask = runtime_context.get_index_of_this_subtask()

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield self.subtask, value

    with OperatorHarness(Where(), parallelism=2) as harness:
        harness.push("a", "b", "c")
        assert sorted(harness.take()) == [(0, "a"), (0, "c"), (1, "b")]
        harness.push("d", subtask=0)
        assert harness.outputs() == [(0, "d")]
