"""The broadcast pattern."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob, KeyedStateNotAvailable
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.taskmanager.operators.two_inputs.broadcast import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from penstock.testing.operator_run import OperatorRun

RULES = MapStateDescriptor("rules", str, float)


def first(value: Any) -> Any:
    return value[0]


class DynamicThresholds(KeyedBroadcastProcessFunction):
    """A function that alerts above a threshold, which the broadcast side changes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))

    def process_element(self, value: Any, ctx: Any) -> Any:
        factor = ctx.get_broadcast_state(RULES).get(value[0]) or 4.0
        previous = self.last.value()
        if previous is not None and previous > 0 and value[1] / previous > factor:
            yield value[0], value[1], previous
        self.last.update(value[1])

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        rules = ctx.get_broadcast_state(RULES)
        if value[1] >= 1.0:
            rules.put(value[0], value[1])
        else:
            rules.remove(value[0])


def test_dynamic_thresholds() -> None:
    """The default threshold 4.0 is raised to 5.0 and lowered to 1.2."""
    run = OperatorRun(KeyedBroadcastProcessOperator(DynamicThresholds(), [RULES], first))
    assert run.push(("s1", 10.0), ("s1", 41.0)).take() == [("s1", 41.0, 10.0)]
    assert run.push(("s1", 5.0), to=1).push(("s1", 190.0)).take() == []
    assert run.push(("s1", 1.2), to=1).push(("s1", 230.0)).take() == [("s1", 230.0, 190.0)]
    assert run.push(("s1", 0.9), to=1).push(("s1", 400.0)).take() == []


def test_broadcast_state_is_restored_on_every_subtask() -> None:
    run = OperatorRun(KeyedBroadcastProcessOperator(DynamicThresholds(), [RULES], first))
    run.push(("s1", 1.2), to=1).push(("s1", 100.0))
    for again in OperatorRun.rescale([run], 3):
        assert dict(again.operator.states["rules"].items()) == {"s1": 1.2}  # type: ignore[attr-defined]


class Fire(BroadcastProcessFunction):
    """A function that alerts on heat if the broadcast smoke level is high. Its broadcast state survives a failure."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        if ctx.get_broadcast_state(RULES).get("smoke") == 1.0 and value[1] > 100:
            yield "Risk of fire!"

    def process_broadcast_element(self, value: float, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES)["smoke"] = value


def test_fire_alert_survives_a_failure_with_broadcast_state() -> None:
    run = OperatorRun(BroadcastProcessOperator(Fire(), [RULES])).push(1.0, to=1)
    assert run.restart().push(("s", 101)).values == ["Risk of fire!"]


WRITES = {
    "put": lambda state: state.put("a", 1.0),
    "item": lambda state: state.__setitem__("a", 1.0),
    "put_all": lambda state: state.put_all({"a": 1.0}),
    "remove": lambda state: state.remove("a"),
    "del": lambda state: state.__delitem__("a"),
    "clear": lambda state: state.clear(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_data_side_cannot_write(write: Any) -> None:
    """Writes would give the subtasks different states."""

    class Writes(Fire):
        def process_element(self, value: Any, ctx: Any) -> None:
            write(ctx.get_broadcast_state(RULES))

    with pytest.raises(InvalidJob, match="only read broadcast state") as caught:
        OperatorRun(BroadcastProcessOperator(Writes(), [RULES])).push(("s", 1))
    assert caught.value.operator == "operator under test"


def test_the_data_side_reads_like_a_dict() -> None:
    class Reads(Fire):
        def process_element(self, value: Any, ctx: Any) -> Any:
            state = ctx.get_broadcast_state(RULES)
            yield list(state), "smoke" in state, state["smoke"], dict(state.items()), len(state), bool(state)

    run = OperatorRun(BroadcastProcessOperator(Reads(), [RULES])).push(2.0, to=1).push(1)
    assert run.values == [(["smoke"], True, 2.0, {"smoke": 2.0}, 1, True)]


@pytest.mark.parametrize("touch", [lambda last: last.value(), lambda last: last.update(1.0)])
def test_the_broadcast_side_has_no_keyed_state(touch: Any) -> None:
    class Touches(DynamicThresholds):
        def process_broadcast_element(self, value: Any, ctx: Any) -> None:
            touch(self.last)

    run = OperatorRun(KeyedBroadcastProcessOperator(Touches(), [RULES], first)).push(("s", 1.0))
    with pytest.raises(KeyedStateNotAvailable, match="apply_to_keyed_state"):
        run.push(("s", 1.0), to=1)


LAST = ValueStateDescriptor("last", float)


def test_the_broadcast_side_reaches_the_state_of_all_keys() -> None:
    """`apply_to_keyed_state` calls the function for every key."""

    class Resets(DynamicThresholds):
        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            seen: list[Any] = []

            def reset(key: Any, state: Any) -> None:
                seen.append((key, state.value()))
                state.update(0.5)

            ctx.apply_to_keyed_state(LAST, reset)
            yield sorted(seen)

    run = OperatorRun(KeyedBroadcastProcessOperator(Resets(), [RULES], first)).push(("a", 1.0), ("b", 2.0))
    assert run.push("reset", to=1).take() == [[("a", 1.0), ("b", 2.0)]]
    assert run.push(("a", 3.0)).take() == [("a", 3.0, 0.5)]


def test_timers_belong_to_the_data_side() -> None:
    class Timed(DynamicThresholds):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.timer_service().register_event_time_timer(10)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key(), timestamp, ctx.get_broadcast_state(RULES).get(ctx.get_current_key())

    run = OperatorRun(KeyedBroadcastProcessOperator(Timed(), [RULES], first))
    run.push(("a", 2.0), to=1).push(("a", 1.0), at=1).watermark(10)
    assert run.results == [(("a", 10, 2.0), 10)]


def test_a_state_that_was_not_broadcast_is_named() -> None:
    class Other(Fire):
        def process_element(self, value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(MapStateDescriptor("other", str, str))

    with pytest.raises(InvalidJob, match=r"no broadcast state 'other'.*rules"):
        OperatorRun(BroadcastProcessOperator(Other(), [RULES])).push(1)
