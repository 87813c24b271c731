"""The window operator: firing, lateness, functions, evictors, sessions, count and global windows."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.taskmanager.batch import MAX_TIMESTAMP
from penstock.taskmanager.operators.window import LATE_RECORDS_METRIC, WindowOperator
from penstock.taskmanager.operators.window_function import WindowFunctionSpec
from penstock.testing.operator_run import WATERMARK, OperatorRun

Spec = WindowFunctionSpec
KEY = itemgetter(0)
LATE = OutputTag("late")


@pytest.fixture(params=["auto", "never"])
def grouping(request: pytest.FixtureRequest) -> str:
    """Both ways a window operator may go."""
    return str(request.param)


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def gather(key: Any, context: Any, elements: Any) -> Any:
    """What a full window saw."""
    window = context.window()
    yield key, window.start, window.end, [element[1] for element in elements]


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0.0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (element,) = elements
        yield key, element, context.window().end


# --- event-time windows -----------------------------------------------------------------------------------------


def test_average_sensor_readings_over_five_seconds(grouping: str) -> None:
    """E11: the window is [0, 5000); its result goes out before the watermark, stamped with the window's last ms."""
    operator = WindowOperator(
        TumblingEventTimeWindows.of(5000), Spec.aggregate(Mean(), WithEnd()), KEY, grouping=grouping
    )
    run = OperatorRun(operator)
    celsius = [("sensor_1", (fahrenheit - 32) * 5 / 9) for fahrenheit in (32, 50, 68)]
    run.push(*celsius, at=[1000, 1500, 4999]).watermark(4998)
    assert run.results == []
    run.push(("sensor_1", 0.0), at=[10_000]).watermark(9998)
    assert run.events[1:] == [(("sensor_1", 10.0, 5000), 4999), (WATERMARK, 9998)]


def test_windows_of_each_key_are_independent_and_none_is_empty(grouping: str) -> None:
    """T26, T35."""
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    run.push(("a", 1), ("b", 2), ("a", 3), at=[1, 2, 35]).end()
    assert run.results == [(("a", 1), 9), (("b", 2), 9), (("a", 3), 39)]


def test_minimum_and_average_per_fifteen_seconds(grouping: str) -> None:
    """E35."""
    readings = [("s", 10), ("s", 20), ("s", 30)]
    windows = TumblingEventTimeWindows.of(timedelta(seconds=15))

    class Least(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return min(value1, value2)

    for fn in (Least(), min):
        run = OperatorRun(WindowOperator(windows, Spec.reduce(fn), KEY, grouping=grouping))
        assert run.push(*readings, at=[1, 2, 3]).end().values == [("s", 10)]
    run = OperatorRun(WindowOperator(windows, Spec.aggregate(Mean()), KEY, grouping=grouping))
    assert run.push(*readings, at=[1, 2, 3]).end().values == [20.0]


def test_min_and_max_by_process_and_by_reduce_are_identical(grouping: str) -> None:
    """E36."""

    class HighAndLow(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            temperatures = [t for _, t in elements]
            yield key, min(temperatures), max(temperatures), context.window().end

    def with_end(key: Any, context: Any, elements: Any) -> Any:
        ((_, low, high),) = elements
        yield key, low, high, context.window().end

    windows = TumblingEventTimeWindows.of(timedelta(seconds=5))
    readings = [("a", 3.0), ("b", 7.0), ("a", 1.0), ("a", 2.0), ("b", 8.0)]
    at = [0, 1, 4999, 5000, 5001]
    full = OperatorRun(WindowOperator(windows, Spec.process(HighAndLow()), KEY)).push(*readings, at=at).end()
    reduce = Spec.reduce(lambda a, b: (a[0], min(a[1], b[1]), max(a[2], b[2])), with_end)
    triples = [(key, t, t) for key, t in readings]
    folded = OperatorRun(WindowOperator(windows, reduce, KEY, grouping=grouping)).push(*triples, at=at).end()
    assert (
        sorted(full.values)
        == sorted(folded.values)
        == sorted([("a", 1.0, 3.0, 5000), ("b", 7.0, 7.0, 5000), ("a", 2.0, 2.0, 10_000), ("b", 8.0, 8.0, 10_000)])
    )


def test_sliding_windows_fire_in_order_of_their_ends(grouping: str) -> None:
    run = OperatorRun(WindowOperator(SlidingEventTimeWindows.of(10, 5), Spec.reduce(add), KEY, grouping=grouping))
    run.push(("a", 1), ("a", 10), at=[7, 12]).end()
    assert run.results == [(("a", 1), 9), (("a", 11), 14), (("a", 10), 19)]


def test_records_between_sliding_windows_are_dropped_but_not_late(grouping: str) -> None:
    """T29."""
    operator = WindowOperator(
        SlidingEventTimeWindows.of(10, 25), Spec.reduce(add), KEY, late_tag=LATE, grouping=grouping
    )
    run = OperatorRun(operator).push(("a", 1), ("a", 10), at=[5, 15]).end()
    assert run.values == [("a", 1)]
    assert run.side("late") == []


def test_bubbles_of_the_tunnel_count_by_event_time() -> None:
    """E3: 300 pops live and 250 that arrive two minutes later reach 500 within one minute of event time."""
    count = Spec.reduce(add, lambda key, ctx, pops: [(key, total, total >= 500) for _, total in pops])
    minute = timedelta(minutes=1)
    pops = [("team", 1)] * 300, [("team", 1)] * 250
    event = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(minute), count, KEY))
    event.push(*pops[0], at=30_000).watermark(20_000).at_time(180_000).push(*pops[1], at=59_000).end()
    assert event.values == [("team", 550, True)]
    wall = OperatorRun(WindowOperator(TumblingProcessingTimeWindows.of(minute), count, KEY))
    wall.push(*pops[0]).at_time(180_000).push(*pops[1]).at_time(300_000)
    assert wall.values == [("team", 300, False), ("team", 250, False)]


def test_records_without_timestamps_are_refused_by_event_time_windows(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    with pytest.raises(InvalidJob, match="assign_timestamps_and_watermarks") as caught:
        run.push(("a", 1))
    assert caught.value.operator == "operator under test"


def test_windows_leave_no_state_behind(grouping: str) -> None:
    operator = WindowOperator(
        SlidingEventTimeWindows.of(20, 10), Spec.reduce(add), KEY, allowed_lateness=50, grouping=grouping
    )
    run = OperatorRun(operator).push(*[(key, 1) for key in "abcdef"], at=[1, 2, 3, 14, 15, 16])
    assert run.backend.entry_count() > 0
    run.watermark(79)
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


# --- late records -----------------------------------------------------------------------------------------------


def test_late_records_are_dropped_and_counted(grouping: str) -> None:
    """T53."""
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    run.push(("a", 1), at=5).watermark(9).push(("a", 1), ("a", 2), at=[5, 12]).end()
    assert run.values == [("a", 1), ("a", 2)]
    assert run.metrics.counters[LATE_RECORDS_METRIC].count == 1


class Counting(ProcessWindowFunction):
    """(id, window end, count)."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().end, len(list(elements))


def test_late_records_go_to_the_side_output_with_their_timestamps() -> None:
    """E38 (b)."""
    operator = WindowOperator(TumblingEventTimeWindows.of(10_000), Spec.process(Counting()), KEY, late_tag=LATE)
    run = OperatorRun(operator).push(("s", 1), ("s", 1), at=[1, 2]).watermark(10_000).push(("s", 9), at=9_999)
    assert run.values == [("s", 10_000, 2)]
    assert run.output.sides == {"late": [(("s", 9), 9_999)]}


class FirstOrUpdate(ProcessWindowFunction):
    """E38 (c): per-window state tells the first result from its updates."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        seen = context.window_state().get_state(ValueStateDescriptor("fired", bool))
        word = "update" if seen.value() else "first"
        seen.update(True)
        yield key, context.window().end, sum(n for _, n in elements), word

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", bool)).clear()


@pytest.mark.parametrize("spec", [Spec.process(FirstOrUpdate()), Spec.reduce(add, FirstOrUpdate())])
def test_allowed_lateness_updates_results_until_its_end(spec: WindowFunctionSpec, grouping: str) -> None:
    """E38 (c): 10 s windows with 5 s of lateness."""
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10_000), spec, KEY, allowed_lateness=5_000, late_tag=LATE, grouping=grouping
    )
    run = OperatorRun(operator).push(*[("s", 1)] * 3, at=[1, 2, 3]).watermark(10_000)
    assert run.take() == [("s", 10_000, 3, "first")]
    assert run.watermark(12_000).push(("s", 1), at=4).values == [("s", 10_000, 4, "update")]
    assert [timestamp for _, timestamp in run.results] == [9_999]
    run.take()
    assert run.watermark(14_998).push(("s", 1), ("s", 1), at=[5, 6]).take() == [
        ("s", 10_000, 5, "update"),
        ("s", 10_000, 6, "update"),
    ]
    assert run.watermark(15_000).push(("s", 1), at=7).values == []
    assert run.side("late") == [("s", 1)]
    assert run.backend.entry_count() == 0


def test_a_late_record_of_another_key_fires_that_key_alone(grouping: str) -> None:
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, allowed_lateness=100, grouping=grouping
    )
    run = OperatorRun(operator).push(("a", 1), at=1).watermark(20)
    assert run.take() == [("a", 1)]
    assert run.push(("b", 5), at=2).take() == [("b", 5)]
    assert run.watermark(200).take() == []


def test_negative_lateness_is_refused() -> None:
    with pytest.raises(InvalidJob, match="lateness"):
        WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, allowed_lateness=-1)


def test_a_restored_window_that_has_fired_waits_for_late_records_only(grouping: str) -> None:
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, allowed_lateness=100, late_tag=LATE, grouping=grouping
    )
    run = OperatorRun(operator).push(("a", 1), ("b", 2), at=[1, 2]).watermark(50)
    again = run.restart()
    again.push(("a", 5), at=3)
    assert again.take() == [("a", 6)]
    assert again.watermark(60).take() == []
    assert again.watermark(109).backend.entry_count() == 0


def test_what_was_late_before_a_failure_is_late_after_it(grouping: str) -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, late_tag=LATE, grouping=grouping)
    run = OperatorRun(operator).push(("a", 1), at=1).watermark(50)
    again = run.restart().push(("a", 7), at=2).end()
    assert again.values == []
    assert again.side("late") == [("a", 7)]


# --- processing-time windows ------------------------------------------------------------------------------------


def test_processing_time_windows_fire_by_the_wall_clock(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingProcessingTimeWindows.of(1000), Spec.reduce(add), KEY, grouping=grouping))
    run.at_time(1200).push(("a", 1), ("b", 1))
    assert run.operator.next_processing_time() == 1999
    run.clock.now = 1900
    run.push(("a", 1)).at_time(1998)
    assert run.values == []
    assert sorted(run.at_time(1999).values) == [("a", 2), ("b", 1)]
    assert run.operator.next_processing_time() is None
    assert run.backend.entry_count() == 0


def test_overdue_processing_time_windows_fire_after_a_restore(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingProcessingTimeWindows.of(1000), Spec.reduce(add), KEY, grouping=grouping))
    again = run.push(("a", 1)).restart()
    assert again.at_time(60_000).values == [("a", 1)]


# --- sessions ---------------------------------------------------------------------------------------------------

MINUTE = 60_000
SESSIONS = EventTimeSessionWindows.with_gap(timedelta(minutes=15))


def minutes(*times: int) -> list[int]:
    return [time * MINUTE for time in times]


@pytest.mark.parametrize("order", [[0, 10, 24, 40], [24, 40, 0, 10], [40, 0, 24, 10]])
def test_sessions_merge_in_any_order_of_arrival(order: list[int]) -> None:
    """E34: :00, :10, :24 are one session [:00, :39); :40 starts another."""
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    for minute in order:
        run.push(("user", minute), at=minutes(minute))
    run.end()
    assert [(start, end, sorted(seen)) for _, start, end, seen in run.values] == [
        (0, 39 * MINUTE, [0, 10, 24]),
        (40 * MINUTE, 55 * MINUTE, [40]),
    ]
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


def test_a_record_that_touches_the_end_joins_the_session() -> None:
    """E34: exactly at :39; Flink merges windows that touch."""
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    run.push(*[("user", m) for m in (0, 10, 24, 39)], at=minutes(0, 10, 24, 39)).end()
    assert [(start, end) for _, start, end, _ in run.values] == [(0, 54 * MINUTE)]


@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.aggregate(Mean())])
def test_sessions_merge_folded_values(spec: WindowFunctionSpec) -> None:
    run = OperatorRun(WindowOperator(SESSIONS, spec, KEY))
    run.push(*[("u", m) for m in (0, 30, 15)], at=minutes(0, 30, 15)).end()
    assert run.values == [("u", 45) if spec.kind == "reduce" else 15.0]


def test_sessions_of_keys_are_apart() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY))
    run.push(("a", 1), ("b", 2), ("a", 4), at=minutes(0, 5, 10)).end()
    assert sorted(run.values) == [("a", 5), ("b", 2)]


def test_a_late_record_joins_an_open_session_but_opens_none() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY, late_tag=LATE))
    run.push(("a", 20), at=minutes(20)).watermark(25 * MINUTE).push(("a", 8), ("a", 2), ("b", 3), at=minutes(8, 2, 3))
    assert run.side("late") == [("b", 3)]
    assert [(s, e) for _, s, e, _ in run.end().values] == [(2 * MINUTE, 35 * MINUTE)]


def test_allowed_lateness_reopens_a_session_that_has_fired() -> None:
    operator = WindowOperator(SESSIONS, Spec.process(gather), KEY, allowed_lateness=timedelta(minutes=30))
    run = OperatorRun(operator).push(("a", 0), at=[0]).watermark(20 * MINUTE)
    assert [(s, e) for _, s, e, _ in run.take()] == [(0, 15 * MINUTE)]
    run.push(("a", 4), at=minutes(4))
    assert [(s, e, seen) for _, s, e, seen in run.take()] == [(0, 19 * MINUTE, [0, 4])]
    run.push(("a", 14), at=minutes(14))
    assert run.take() == []
    assert [(s, e, seen) for _, s, e, seen in run.watermark(29 * MINUTE).take()] == [(0, 29 * MINUTE, [0, 4, 14])]


def test_a_merged_session_has_the_timers_of_one_window() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.reduce(add), KEY, allowed_lateness=1000))
    run.push(*[("a", m) for m in (0, 30, 15, 5)], at=minutes(0, 30, 15, 5))
    end = 45 * MINUTE - 1
    assert sorted(timestamp for timestamp, _, _ in run.timers.event_time_timers()) == [end, end + 1000]


def test_sessions_survive_a_restart() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(gather), KEY))
    run.push(("a", 0), ("a", 20), at=minutes(0, 20))
    again = run.restart().push(("a", 10), at=minutes(10)).end()
    assert [(s, e, sorted(seen)) for _, s, e, seen in again.values] == [(0, 35 * MINUTE, [0, 10, 20])]


def test_sessions_with_dynamic_gaps() -> None:
    sessions = EventTimeSessionWindows.with_dynamic_gap(itemgetter(1))
    run = OperatorRun(WindowOperator(sessions, Spec.process(gather), KEY))
    run.push(("a", 100), ("a", 10), ("a", 5), at=[0, 20, 200]).end()
    assert run.values == [("a", 0, 100, [100, 10]), ("a", 200, 205, [5])]


def test_processing_time_sessions() -> None:
    run = OperatorRun(WindowOperator(ProcessingTimeSessionWindows.with_gap(100), Spec.process(gather), KEY))
    run.push(("a", 1)).at_time(50).push(("a", 2)).at_time(149)
    assert run.values == [("a", 0, 150, [1, 2])]
    assert run.backend.entry_count() == 0


# --- count and global windows -----------------------------------------------------------------------------------


def test_count_windows_of_two_per_colour() -> None:
    """E2: W,B,W,G,B -> {W,W},{B,B}; G waits."""
    pairs = Spec.process(lambda key, ctx, elements: [(key, len(list(elements)))])
    run = OperatorRun(WindowOperator(CountTumblingWindowAssigner.of(2), pairs, lambda v: v))
    run.push("W", "B", "W", "G", "B")
    assert run.values == [("W", 2), ("B", 2)]
    assert run.push("G").values[-1] == ("G", 2)


def test_full_count_windows_leave_no_contents() -> None:
    """Only the position of each key stays."""
    run = OperatorRun(WindowOperator(CountTumblingWindowAssigner.of(2), Spec.reduce(add), KEY))
    run.push(*[("a", 1)] * 100)
    assert run.values == [("a", 2)] * 50
    assert run.backend.entry_count() == 1


def test_sliding_count_windows() -> None:
    run = OperatorRun(
        WindowOperator(
            CountSlidingWindowAssigner.of(4, 2),
            Spec.process(lambda key, ctx, elements: [[n for _, n in elements]]),
            KEY,
        )
    )
    run.push(*[("a", n) for n in range(8)])
    assert run.values == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]]


def test_a_global_window_never_fires_by_itself() -> None:
    """T33."""
    run = OperatorRun(WindowOperator(GlobalWindows.create(), Spec.reduce(add), KEY))
    assert run.push(("a", 1), at=1).end().at_time(10**15).values == []


@pytest.mark.parametrize("stamps", [[1, 2, 3], None])
@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.reduce(add, lambda key, context, elements: elements)])
def test_a_global_window_with_the_event_time_trigger_fires_at_the_end_of_the_input(
    spec: WindowFunctionSpec, stamps: list[int] | None, grouping: str
) -> None:
    """How batch mode gives final results; the records need no timestamps."""

    def operator(grouping: str) -> WindowOperator:
        trigger = EventTimeTrigger.create()
        return WindowOperator(GlobalWindows.create(), spec, KEY, trigger=trigger, grouping=grouping)

    run = OperatorRun(operator(grouping)).push(("a", 1), ("a", 2), ("b", 4), at=stamps).watermark(100)
    assert run.values == []
    run = (
        run.restart()
        .push(("c", 8), at=None if stamps is None else 7)
        .restart(operator("never"))
        .restart(operator("auto"))
    )
    assert sorted(run.end().results) == [
        (("a", 3), MAX_TIMESTAMP),
        (("b", 4), MAX_TIMESTAMP),
        (("c", 8), MAX_TIMESTAMP),
    ]


# --- functions --------------------------------------------------------------------------------------------------


class Applied(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [(key, window.end, sum(n for _, n in inputs))]


class AppliedToAll(AllWindowFunction):
    def apply(self, window: Any, inputs: Any) -> Any:
        return [(window.end, sum(n for _, n in inputs))]


class ProcessedAll(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        yield context.window().end, sum(n for _, n in elements)


def with_key(key: Any, window: Any, inputs: Any) -> Any:
    yield key, window.end, sum(n for _, n in inputs)


def without_key(window: Any, inputs: Any) -> Any:
    yield window.end, sum(n for _, n in inputs)


@pytest.mark.parametrize("spec", [Spec.apply(Applied()), Spec.apply(with_key), Spec.reduce(add, Applied())])
def test_window_functions_get_key_window_and_elements(spec: WindowFunctionSpec, grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, KEY, grouping=grouping))
    assert run.push(("a", 1), ("a", 2), at=1).end().values == [("a", 10, 3)]


@pytest.mark.parametrize(
    "spec",
    [
        Spec.apply(AppliedToAll()),
        Spec.apply(without_key),
        Spec.process(ProcessedAll()),
        Spec.reduce(add, AppliedToAll()),
        Spec.reduce(add, ProcessedAll()),
    ],
)
def test_a_window_over_the_whole_stream_has_no_key(spec: WindowFunctionSpec, grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, grouping=grouping))
    assert run.push(("a", 1), ("b", 2), at=1).end().values == [(10, 3)]


def test_window_functions_know_the_clocks_and_side_outputs(grouping: str) -> None:
    def clocks(key: Any, context: Any, elements: Any) -> Any:
        context.output(LATE, "by output")
        yield LATE, "by yield"
        yield context.current_watermark(), context.current_processing_time()

    spec = Spec.reduce(add, clocks)
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, KEY, grouping=grouping))
    run.at_time(77).push(("a", 1), at=1).watermark(33)
    assert run.results == [((33, 77), 9)]
    assert run.output.sides == {"late": [("by output", 9), ("by yield", 9)]}


class RunningTotal(ProcessWindowFunction):
    """Global state spans the windows of a key; window state and the function's own handles do not mix."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int, default=0))

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        windows = context.global_state().get_map_state(MapStateDescriptor("windows", int, int))
        own = context.window_state().get_map_state(MapStateDescriptor("own", str, int))
        amount = sum(n for _, n in elements)
        own["amount"] = amount
        windows[context.window().start] = amount
        self.total.update((self.total.value() or 0) + own["amount"])
        yield key, self.total.value(), sorted(windows.keys()), len(own)

    def clear(self, context: Any) -> None:
        context.window_state().get_map_state(MapStateDescriptor("own", str, int)).clear()


def test_window_state_and_global_state_are_apart(grouping: str) -> None:
    spec = Spec.reduce(add, RunningTotal())
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, KEY, grouping=grouping))
    run.push(("a", 1), ("a", 10), at=[1, 12]).end()
    assert run.values == [("a", 1, [0], 1), ("a", 11, [0, 10], 1)]
    assert sorted(name for name in ("own",) if list(run.backend.namespaces(name))) == []


def test_merging_windows_have_no_window_state() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(FirstOrUpdate()), KEY)).push(("a", 1), at=1)
    with pytest.raises(InvalidJob, match="global_state"):
        run.end()


def test_errors_of_window_functions_name_window_and_key(grouping: str) -> None:
    def fails(key: Any, context: Any, elements: Any) -> Any:
        raise RuntimeError("no")

    spec = Spec.reduce(add, fails)
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, KEY, grouping=grouping)).push(
        ("a", 1), at=1
    )
    with pytest.raises(
        UserFunctionError, match=r"TimeWindow\(start=0, end=10\) of the key 'a' raised RuntimeError: no"
    ):
        run.end()


def test_errors_in_a_fold_name_the_record(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    with pytest.raises(UserFunctionError, match=r"record 1: \('a', 'x'\)"):
        run.push(("a", 1), ("a", "x"), ("a", 2), at=1)


def test_aggregates_without_their_methods_are_refused() -> None:
    with pytest.raises(InvalidJob, match="has no add, get_result"):
        Spec.aggregate(type("Half", (), {"create_accumulator": lambda self: 0})())


# --- evictors ---------------------------------------------------------------------------------------------------


def test_evictor_keeps_the_newest_records_of_a_window() -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(100), Spec.process(gather), KEY, evictor=TimeEvictor.of(10))
    run = OperatorRun(operator).push(("a", 1), ("a", 2), ("a", 3), at=[5, 50, 55]).end()
    assert run.values == [("a", 0, 100, [2, 3])]


@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.aggregate(Mean())])
def test_evictor_before_a_fold(spec: WindowFunctionSpec) -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(100), spec, KEY, evictor=CountEvictor.of(2))
    run = OperatorRun(operator).push(*[("a", n) for n in (1, 2, 4)], at=1).end()
    assert run.values == [("a", 6) if spec.kind == "reduce" else 3.0]


def test_what_an_evictor_leaves_stays_in_the_window() -> None:
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10), Spec.process(gather), KEY, evictor=CountEvictor.of(2), allowed_lateness=100
    )
    run = OperatorRun(operator).push(*[("a", n) for n in (1, 2, 3)], at=1).watermark(10)
    assert run.take() == [("a", 0, 10, [2, 3])]
    assert run.push(("a", 4), at=2).take() == [("a", 0, 10, [3, 4])]


# --- joins by windows -------------------------------------------------------------------------------------------


def test_window_join_pairs_within_a_window_only() -> None:
    """E39: the cross product per key and window; half a second apart across the full hour there is no pair."""

    def join(key: Any, window: Any, inputs: Any) -> Any:
        sides: dict[str, list[Any]] = {"left": [], "right": []}
        for _, side, value in inputs:
            sides[side].append(value)
        return [(left, right) for left in sides["left"] for right in sides["right"]]

    hour = 3_600_000
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(hour), Spec.apply(join), KEY))
    run.push(("k", "left", "l"), ("k", "right", "r"), at=[11 * hour - 500, 11 * hour + 400]).end()
    assert run.values == []
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(hour), Spec.apply(join), KEY))
    left = [("k", "left", n) for n in range(2)]
    run.push(*left, *[("k", "right", n) for n in range(3)], at=10 * hour).end()
    assert len(run.values) == 6


@pytest.mark.parametrize(
    ("assigner", "windows"),
    [
        (TumblingEventTimeWindows.of(100), 1),
        (SlidingEventTimeWindows.of(90, 30), 3),
        (EventTimeSessionWindows.with_gap(10), 1),
    ],
)
def test_windows_end_with_time_itself(assigner: Any, windows: int, grouping: str) -> None:
    """What a count window gives has the latest of all timestamps."""
    run = OperatorRun(WindowOperator(assigner, Spec.reduce(add), KEY, allowed_lateness=50, grouping=grouping))
    run.push(("a", 1), at=[MAX_TIMESTAMP]).watermark(1_000).push(("a", 2), at=[MAX_TIMESTAMP])
    run.snapshot()
    assert run.results == []
    run.end()
    assert run.results == [(("a", 3), MAX_TIMESTAMP - 1)] * windows
