"""Process functions: timers, side outputs, keyed and operator state."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import KeyedStateNotAvailable, UserFunctionError
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction, RuntimeContext
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.taskmanager.operators.process import KeyedProcessOperator, ProcessOperator
from penstock.testing.operator_run import WATERMARK, ManualClock, OperatorRun

FREEZING = OutputTag("freezing-alarms", str)
LATE = OutputTag("late-readings")


def by_id(reading: Any) -> Any:
    return reading[0]


class FreezingMonitor(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] < 32.0:
            ctx.output(FREEZING, f"Freezing Alarm for {value[0]}")
        yield value


def test_side_output_gets_alarms_and_the_main_output_every_reading() -> None:
    run = OperatorRun(ProcessOperator(FreezingMonitor())).push(("s1", 31.9), ("s2", 32.0), at=[1, 2])
    assert run.values == [("s1", 31.9), ("s2", 32.0)]
    assert run.output.sides == {"freezing-alarms": [("Freezing Alarm for s1", 1)]}


def test_pairs_with_an_output_tag_go_to_the_side_output() -> None:
    def split(value: int, ctx: Any) -> Any:
        yield (OutputTag("odd"), value) if value % 2 else value

    run = OperatorRun(ProcessOperator(split)).push(1, 2, 3, 4, at=9)
    assert run.results == [(2, 9), (4, 9)]
    assert run.output.sides == {"odd": [(1, 9), (3, 9)]}


def test_numbers_are_split_by_side_outputs() -> None:
    """Numbers are large, small, or both."""
    large, small = OutputTag("large"), OutputTag("small")

    def split(value: tuple[int, str], ctx: Any) -> Any:
        yield value
        yield large if value[0] > 1000 else small, value

    numbers = [(1000, "a"), (1001, "b"), (7, "c")]
    run = OperatorRun(ProcessOperator(split)).push(*numbers)
    assert run.side("large") == [(1001, "b")]
    assert run.side("small") == [(1000, "a"), (7, "c")]
    assert run.values == numbers


def test_plain_pairs_are_results() -> None:
    run = OperatorRun(ProcessOperator(lambda v, ctx: [("odd", v)])).push(1)
    assert run.values == [("odd", 1)]


@pytest.mark.parametrize("result", [lambda v: None, lambda v: [], lambda v: (x for x in ())])
def test_a_function_without_results_emits_nothing(result: Any) -> None:
    assert OperatorRun(ProcessOperator(lambda v, ctx: result(v))).push(1, 2).output.batches == []


class LateSplitter(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if ctx.timestamp() < ctx.timer_service().current_watermark():
            yield LATE, value
        else:
            yield value


def test_a_process_function_recognizes_records_behind_the_watermark() -> None:
    run = OperatorRun(ProcessOperator(LateSplitter()))
    run.push("a", at=10).watermark(20).push("late", "on the mark", "b", at=[19, 20, 30])
    assert run.values == ["a", "on the mark", "b"]
    assert run.side("late-readings") == ["late"]


def test_timers_need_a_key() -> None:
    def register(value: int, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)

    with pytest.raises(KeyedStateNotAvailable, match="key_by") as caught:
        OperatorRun(ProcessOperator(register)).push(1)
    assert caught.value.operator == "operator under test"


class TempRise(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", int))

    def process_element(self, value: Any, ctx: Any) -> None:
        last, timer = self.last.value(), self.timer.value()
        self.last.update(value[1])
        if last is None or value[1] < last:
            self.timer.clear()
        elif value[1] > last and timer is None:
            at = ctx.timer_service().current_processing_time() + 1000
            ctx.timer_service().register_processing_time_timer(at)
            self.timer.update(at)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp == self.timer.value():
            assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
            yield f"Temperature of sensor '{ctx.get_current_key()}' monotonically increased for 1 second."
            self.timer.clear()


def feed_temperatures(run: OperatorRun, temperatures: dict[int, float]) -> list[tuple[int, str]]:
    alerts: list[tuple[int, str]] = []
    for now in range(0, 2600, 100):
        run.clock.now = now
        if now in temperatures:
            run.push(("sensor_x", temperatures[now]))
        alerts.extend((now, alert) for alert in run.at_time(now).take())
    return alerts


def test_steady_rise_alerts_every_second() -> None:
    """The first reading registers no timer, and the second one does."""
    run = OperatorRun(KeyedProcessOperator(TempRise(), by_id))
    alerts = feed_temperatures(run, {now: 20 + now / 100 for now in range(0, 2600, 100)})
    text = "Temperature of sensor 'sensor_x' monotonically increased for 1 second."
    assert alerts == [(1100, text), (2200, text)]
    assert run.results == []


def test_a_drop_before_the_timer_prevents_the_alert() -> None:
    """The temperature drops after 0.9 s. The timer fires without an alert."""
    rise = {now: 20 + now / 100 for now in range(0, 1000, 100)}
    run = OperatorRun(KeyedProcessOperator(TempRise(), by_id))
    assert feed_temperatures(run, {**rise, 900: 10.0}) == []


def test_equal_temperature_changes_nothing() -> None:
    run = OperatorRun(KeyedProcessOperator(TempRise(), by_id))
    alerts = feed_temperatures(run, {0: 20.0, 100: 21.0, 500: 21.0})
    assert [now for now, _ in alerts] == [1100]


def test_results_of_processing_time_timers_have_no_timestamp() -> None:
    run = OperatorRun(KeyedProcessOperator(TempRise(), by_id))
    run.push(("s", 1.0), ("s", 2.0), at=[5, 6]).at_time(1000)
    assert [timestamp for _, timestamp in run.results] == [None]


class EventTimers(KeyedProcessFunction):
    """A function that registers a timer at the record's number for the record's key."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), timestamp


def test_event_time_timers_fire_in_order_of_time_before_the_watermark_is_emitted() -> None:
    """Each key has one timer per timestamp. The timer fires when the watermark reaches it."""
    run = OperatorRun(KeyedProcessOperator(EventTimers(), by_id))
    run.push(("a", 30), ("b", 10), ("a", 10), ("b", 10), ("a", 20), at=1).watermark(20)
    assert sorted(run.events[:2]) == [(("a", 10), 10), (("b", 10), 10)]
    assert run.events[2:] == [(("a", 20), 20), (WATERMARK, 20)]


def test_timers_registered_by_timers_also_fire_when_they_are_due() -> None:
    class Chain(EventTimers):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(timestamp + 10)
            yield timestamp

    run = OperatorRun(KeyedProcessOperator(Chain(), by_id)).push(("a", 10), at=1).watermark(35)
    assert run.values == [10, 20, 30]


def test_deleted_timers_do_not_fire() -> None:
    def process(value: Any, ctx: Any) -> None:
        timers = ctx.timer_service()
        (timers.register_event_time_timer if value[1] == "set" else timers.delete_event_time_timer)(10)

    class Switch(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            process(value, ctx)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key()

    run = OperatorRun(KeyedProcessOperator(Switch(), by_id))
    run.push(("a", "set"), ("b", "set"), ("a", "delete"), at=1).watermark(10)
    assert run.values == ["b"]


def test_overdue_processing_time_timers_fire_immediately_after_a_restore() -> None:
    run = OperatorRun(KeyedProcessOperator(TempRise(), by_id))
    run.push(("s", 1.0), ("s", 2.0))
    run.clock.now = 5000
    again = run.restart().at_time(5000)
    assert len(again.values) == 1


class TemperatureAlert(KeyedProcessFunction):
    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("lastTemp", float))

    def process_element(self, value: Any, ctx: Any) -> Any:
        previous = self.last.value()
        if previous is not None and previous > 0 and value[1] / previous > self.threshold:
            yield value[0], value[1], previous
        self.last.update(value[1])


def test_temperature_alert_compares_with_the_previous_value_of_the_key() -> None:
    run = OperatorRun(KeyedProcessOperator(TemperatureAlert(1.1), by_id))
    run.push(("s", 50.0), ("other", 1.0), ("s", 54.9), ("s", 61.0), at=1)
    assert run.values == [("s", 61.0, 54.9)]


class SelfCleaningAlert(TemperatureAlert):
    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.cleanup = runtime_context.get_state(ValueStateDescriptor("cleanup", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        at = ctx.timestamp() + 3_600_000
        ctx.timer_service().register_event_time_timer(at)
        self.cleanup.update(at)
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        if timestamp == self.cleanup.value():
            self.last.clear()
            self.cleanup.clear()


def test_self_cleaning_alert_forgets_a_silent_sensor() -> None:
    """A silence of more than one hour causes no alert and leaves no state. Only the last timer clears the state."""
    run = OperatorRun(KeyedProcessOperator(SelfCleaningAlert(1.1), by_id))
    run.push(("s", 10.0), at=0).watermark(0).push(("s", 20.0), at=1_800_000).watermark(3_600_000)
    assert run.take() == [("s", 20.0, 10.0)]
    assert run.backend.entry_count() > 0
    run.watermark(5_400_000)
    assert run.backend.entry_count() == 0
    assert run.push(("s", 90.0), at=5_400_001).values == []


class HighTemperatures(ProcessFunction):
    """A function that counts per subtask in operator list state, which it splits into ten parts at a snapshot."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parts = runtime_context.get_operator_state_store().get_list_state("highTempCnt", int)
        self.count = sum(self.parts)

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] > 120.0:
            self.count += 1
            quotient, rest = divmod(self.count, 10)
            self.parts[:] = [quotient + 1] * rest + [quotient] * (10 - rest)
            yield self.subtask, self.count


def test_operator_state_in_parts_keeps_the_total_after_rescaling() -> None:
    """The count 23 is stored as 3,3,3,2,2,2,2,2,2,2. The total is the same after the rescales 1 -> 4 -> 2."""
    run = OperatorRun(ProcessOperator(HighTemperatures()))
    run.push(*[("s", 121.0)] * 23, ("s", 120.0))
    assert run.values[-1] == (0, 23)
    assert run.context.operator_state.for_functions().get_list_state("highTempCnt", int) == [3, 3, 3] + [2] * 7
    four = OperatorRun.rescale([run], 4)
    assert sum(r.operator.fn.count for r in four) == 23  # type: ignore[attr-defined]
    two = OperatorRun.rescale(four, 2)
    assert sum(r.operator.fn.count for r in two) == 23  # type: ignore[attr-defined]
    assert all(r.operator.fn.count for r in two)  # type: ignore[attr-defined]


class KeyedAndTaskCounts(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.keyed = runtime_context.get_state(ValueStateDescriptor("keyedCnt", int, default=0))
        self.parts = runtime_context.get_operator_state_store().get_list_state("opCnt", int)
        self.count = sum(self.parts)

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] > 10.0:
            self.keyed.update(self.keyed.value() + 1)
            self.count += 1
            self.parts[:] = [self.count]
            yield value[0], self.keyed.value(), self.count


def test_keyed_and_operator_counts_are_both_restored() -> None:
    run = OperatorRun(KeyedProcessOperator(KeyedAndTaskCounts(), by_id))
    run.push(("a", 11.0), ("b", 12.0), ("a", 9.0), ("a", 13.0))
    assert run.values == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)]
    assert run.restart().push(("b", 20.0)).values == [("b", 2, 4)]


def test_an_error_in_on_timer_names_the_timer_and_the_key() -> None:
    class Fails(EventTimers):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            raise ValueError("no")

    run = OperatorRun(KeyedProcessOperator(Fails(), by_id)).push(("a", 10), at=1)
    with pytest.raises(UserFunctionError, match="on_timer at 10 for the key 'a' raised ValueError: no"):
        run.watermark(10)


def test_results_that_are_not_iterable_are_an_error_of_the_function() -> None:
    with pytest.raises(UserFunctionError, match="not iterable"):
        OperatorRun(ProcessOperator(lambda v, ctx: 5)).push(1)


def test_the_clocks_are_available_without_a_key() -> None:
    def clocks(value: int, ctx: Any) -> Any:
        yield ctx.timer_service().current_watermark(), ctx.timer_service().current_processing_time(), ctx.timestamp()

    run = OperatorRun(ProcessOperator(clocks), clock=ManualClock(77)).watermark(12).push(1)
    assert run.values == [(12, 77, None)]
