"""Operators on connected streams."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.datastream.functions import CoFlatMapFunction, CoMapFunction, CoProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.taskmanager.operators.two_inputs.co import CoFlatMapOperator, CoMapOperator, CoProcessOperator
from penstock.testing.operator_run import OperatorRun


def first(value: Any) -> Any:
    return value[0]


class Sides(CoMapFunction):
    def map1(self, value: int) -> Any:
        return "left", value

    def map2(self, value: str) -> Any:
        return "right", value


@pytest.mark.parametrize("fn", [Sides(), (lambda v: ("left", v), lambda v: ("right", v))])
def test_co_map_calls_the_method_of_the_input(fn: Any) -> None:
    run = OperatorRun(CoMapOperator(fn)).push(1, at=5).push("x", at=6, to=1)
    assert run.results == [(("left", 1), 5), (("right", "x"), 6)]


class FireAlert(CoFlatMapFunction):
    """A fire alarm whose smoke level is a field of the object."""

    level = "Low"

    def flat_map1(self, value: Any) -> Any:
        if self.level == "High" and value[1] > 100:
            yield "Risk of fire!", value[2]

    def flat_map2(self, value: str) -> None:
        self.level = value


def test_fire_alert_needs_smoke_and_heat() -> None:
    """The order of the inputs is fixed."""
    run = OperatorRun(CoFlatMapOperator(FireAlert()))
    for level, temperature in [("Low", 110), ("High", 99), ("High", 101), ("Low", 120)]:
        run.push(level, to=1).push(("s", temperature, 42))
    assert run.values == [("Risk of fire!", 42)]


class SwitchableFilter(CoProcessFunction):
    """A filter that forwards the readings of a sensor until the deadline of its switch."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.until = runtime_context.get_state(ValueStateDescriptor("until", int))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        if self.until.value() is not None:
            yield value

    def process_element2(self, value: Any, ctx: Any) -> None:
        timers = ctx.timer_service()
        old = self.until.value()
        if old is not None:
            timers.delete_processing_time_timer(old)
        until = timers.current_processing_time() + value[1]
        self.until.update(until)
        timers.register_processing_time_timer(until)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        self.until.clear()


def test_switchable_filter_forwards_until_its_deadline() -> None:
    """Other sensors are blocked, the state is removed at the end, and a later switch replaces the deadline."""
    run = OperatorRun(CoProcessOperator(SwitchableFilter(), first, first))
    run.push(("sensor_2", "before"))
    run.push(("sensor_2", 10_000), ("sensor_7", 60_000), to=1)
    run.at_time(9_000).push(("sensor_2", "a"), ("sensor_7", "b"), ("sensor_9", "blocked"))
    run.at_time(10_000).push(("sensor_2", "too late"), ("sensor_7", "c"))
    assert run.take() == [("sensor_2", "a"), ("sensor_7", "b"), ("sensor_7", "c")]
    run.push(("sensor_7", 60_000), to=1).at_time(60_000).push(("sensor_7", "d"))
    assert run.take() == [("sensor_7", "d")]
    assert run.at_time(70_000).push(("sensor_7", "too late")).values == []
    assert run.backend.entry_count() == 0


class FireSequence(CoProcessFunction):
    """An alert if smoke follows a high temperature within ten minutes of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.hot_at = runtime_context.get_state(ValueStateDescriptor("hot", int))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.hot_at.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 600_000)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        hot_at = self.hot_at.value()
        if hot_at is not None and ctx.timestamp() <= hot_at + 600_000:
            yield "fire", value[0]
            self.hot_at.clear()

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        hot_at = self.hot_at.value()
        if hot_at is not None and timestamp == hot_at + 600_000:
            self.hot_at.clear()


@pytest.mark.parametrize(("gap_ms", "alerts"), [(599_000, [("fire", "room")]), (601_000, [])])
def test_fire_sequence_within_ten_minutes(gap_ms: int, alerts: list[Any]) -> None:
    """An interval of 9:59 alerts, and one of 10:01 does not. The state is empty afterwards."""
    run = OperatorRun(CoProcessOperator(FireSequence(), first, first))
    run.push(("room", "hot"), at=0).watermark(gap_ms - 1).push(("room", "smoke"), at=gap_ms, to=1)
    assert run.values == alerts
    assert run.watermark(1_200_000).backend.entry_count() == 0


def test_a_key_on_only_one_input_is_refused() -> None:
    with pytest.raises(InvalidJob, match="only one of the two"):
        CoMapOperator(Sides(), first, None)


def test_an_error_names_the_record_of_its_input() -> None:
    run = OperatorRun(CoMapOperator((lambda v: v, lambda v: v["x"])))
    with pytest.raises(UserFunctionError, match="record 1 of a batch of 2: 5"):
        run.push({"x": 1}, 5, to=1)
