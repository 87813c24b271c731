"""Triggers: early and repeated firing, purging, merging, and triggers of the user."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec

Spec = WindowFunctionSpec
KEY = itemgetter(0)
WINDOWS = TumblingEventTimeWindows.of(100)


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def windowed(trigger: Trigger[Any, Any], assigner: Any = WINDOWS, spec: Any = None, **options: Any) -> OperatorRun:
    return OperatorRun(WindowOperator(assigner, spec or Spec.reduce(add), KEY, trigger=trigger, **options))


# --- built-in triggers ------------------------------------------------------------------------------------------


def test_an_explicit_trigger_replaces_the_default_one() -> None:
    """If a count trigger is set, the end of the window does not fire."""
    run = windowed(CountTrigger.of(3)).push(("a", 1), ("a", 2), at=1).end()
    assert run.values == []
    assert run.backend.entry_count() == 0


def test_count_trigger_fires_and_keeps_the_contents() -> None:
    run = windowed(CountTrigger.of(2)).push(*[("a", 1)] * 5, at=1)
    assert run.values == [("a", 2), ("a", 4)]


def test_purging_trigger_drops_the_contents_when_it_fires() -> None:
    run = windowed(PurgingTrigger.of(CountTrigger.of(2))).push(*[("a", 1)] * 5, at=1)
    assert run.values == [("a", 2), ("a", 2)]


def test_purging_trigger_at_the_end_of_the_window() -> None:
    run = windowed(PurgingTrigger.of(EventTimeTrigger.create()), allowed_lateness=1000)
    run.push(("a", 1), ("a", 2), at=1).watermark(99).push(("a", 7), at=2)
    assert run.values == [("a", 3), ("a", 7)]


def test_continuous_event_time_trigger_fires_at_every_interval_and_at_the_end() -> None:
    run = windowed(ContinuousEventTimeTrigger.of(30)).push(("a", 1), at=5)
    assert run.watermark(29).take() == []
    assert run.watermark(30).take() == [("a", 1)]
    assert run.push(("a", 2), at=50).watermark(70).take() == [("a", 3)]
    assert run.watermark(89).take() == []
    assert run.watermark(99).take() == [("a", 3), ("a", 3)]
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


def test_continuous_event_time_trigger_in_merging_windows() -> None:
    sessions = EventTimeSessionWindows.with_gap(100)
    run = windowed(ContinuousEventTimeTrigger.of(30), sessions).push(("a", 1), ("a", 2), at=[5, 50])
    assert run.watermark(30).take() == [("a", 3)]
    assert run.watermark(60).take() == [("a", 3)]
    assert run.end().take()[-1] == ("a", 3)
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


def test_continuous_processing_time_trigger_fires_by_the_wall_clock() -> None:
    run = windowed(ContinuousProcessingTimeTrigger.of(10), GlobalWindows.create()).at_time(3).push(("a", 1))
    assert run.at_time(9).take() == []
    assert run.at_time(10).take() == [("a", 1)]
    assert run.push(("a", 1)).at_time(25).take() == [("a", 2)]
    assert run.operator.next_processing_time() == 30


def test_continuous_processing_time_trigger_ends_with_its_window() -> None:
    run = windowed(ContinuousProcessingTimeTrigger.of(40), TumblingProcessingTimeWindows.of(100)).push(("a", 1))
    fired = [now for now in range(0, 200, 10) if run.at_time(now).take()]
    assert fired == [40, 80, 100]
    assert run.backend.entry_count() == 0
    assert run.operator.next_processing_time() is None


def test_delta_trigger_fires_when_the_value_has_changed_enough() -> None:
    moved = DeltaTrigger.of(5, lambda old, new: abs(new[1] - old[1]))
    run = windowed(moved, GlobalWindows.create()).push(*[("a", n) for n in (10, 12, 16, 20, 30)])
    assert run.values == [("a", 38), ("a", 88)]


@pytest.mark.parametrize("trigger", [NeverTrigger(), ProcessingTimeTrigger.create()])
def test_a_trigger_of_another_clock_never_fires_by_event_time(trigger: Any) -> None:
    assert windowed(trigger).push(("a", 1), at=1).end().values == []


def test_processing_time_trigger_on_event_time_windows() -> None:
    run = windowed(ProcessingTimeTrigger.create()).push(("a", 1), at=1).at_time(99)
    assert run.values == [("a", 1)]


# --- user-written triggers --------------------------------------------------------------------------------------


class ThirtySeconds(WindowAssigner[Any, TimeWindow]):
    """An assigner of windows of thirty seconds."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        start = timestamp - timestamp % 30_000
        return [TimeWindow(start, start + 30_000)]

    def get_default_trigger(self, env: Any = None) -> Any:
        return EventTimeTrigger.create()

    def is_event_time(self) -> bool:
        return True


class OneSecondIntervals(Trigger[Any, TimeWindow]):
    """A trigger that fires at full seconds of the watermark, and fires and purges at the end."""

    seen = ValueStateDescriptor("firstSeen", bool)

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        seen = ctx.get_partitioned_state(self.seen)
        if not seen.value():
            now = max(ctx.get_current_watermark(), 0)
            ctx.register_event_time_timer(now + 1000 - now % 1000)
            ctx.register_event_time_timer(window.end)
            seen.update(True)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if time == window.end:
            return TriggerResult.FIRE_AND_PURGE
        watermark = ctx.get_current_watermark()
        at = watermark + 1000 - watermark % 1000
        if at < window.end:
            ctx.register_event_time_timer(at)
        return TriggerResult.FIRE

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        ctx.get_partitioned_state(self.seen).clear()
        ctx.delete_event_time_timer(window.end)


class Counts(ProcessWindowFunction):
    """A function that emits (id, window end, watermark, count)."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().end, context.current_watermark(), len(list(elements))


def test_thirty_second_windows_with_early_firing() -> None:
    """Counts never decrease. Each second of event time has one early result, and the window's end has the last one."""
    operator = WindowOperator(
        ThirtySeconds(), Spec.process(Counts()), KEY, trigger=OneSecondIntervals(), allowed_lateness=1
    )
    run = OperatorRun(operator)
    for step in range(130):
        run.push(("s", step), at=[step * 300]).watermark(step * 300 - 100)
    by_window: dict[int, list[tuple[int, int]]] = {}
    for _, end, watermark, count in run.values:
        by_window.setdefault(end, []).append((watermark, count))
    results = by_window[30_000]
    assert [count for _, count in results] == sorted(count for _, count in results)
    seconds = [watermark // 1000 for watermark, _ in results[:-1]]
    assert len(set(seconds)) == len(seconds)
    assert len(results) > 25
    assert results[-1][0] >= 30_000
    assert results[-1][1] == 100
    run.end()
    assert run.backend.entry_count() == 0


class PurgeOnZero(Trigger[Any, Any]):
    """A trigger that returns FIRE for every record and PURGE for a zero."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE if element[1] else TriggerResult.PURGE

    def clear(self, window: Any, ctx: Any) -> None:
        pass


def test_purge_drops_the_contents_and_clears_per_window_state() -> None:
    """PURGE also calls the window function's clear."""
    cleared: list[Any] = []

    class Watches(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            state = context.window_state().get_state(ValueStateDescriptor("fired", int, default=0))
            state.update(state.value() + 1)
            yield sum(n for _, n in elements), state.value()

        def clear(self, context: Any) -> None:
            cleared.append(context.window())
            context.window_state().get_state(ValueStateDescriptor("fired", int)).clear()

    run = windowed(PurgeOnZero(), spec=Spec.process(Watches()))
    run.push(("a", 1), ("a", 2), ("a", 0), ("a", 5), at=1)
    assert run.values == [(1, 1), (3, 2), (5, 1)]
    assert cleared == [TimeWindow(0, 100)]
    assert run.end().backend.entry_count() == 0


def test_purge_keeps_the_state_of_the_trigger() -> None:
    """Only clear() at the end of the window removes the state of the trigger."""

    class EverySecondIsDropped(Trigger[Any, Any]):
        count = ReducingStateDescriptor("count", lambda a, b: a + b, int)

        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            count = ctx.get_partitioned_state(self.count)
            count.add(1)
            return TriggerResult.PURGE if count.get() % 2 else TriggerResult.FIRE

        def clear(self, window: Any, ctx: Any) -> None:
            ctx.get_partitioned_state(self.count).clear()

    run = windowed(EverySecondIsDropped()).push(*[("a", n) for n in (1, 2, 3, 4)], at=1)
    assert run.values == [("a", 2), ("a", 4)]
    assert run.end().backend.entry_count() == 0


def test_trigger_state_is_separate_from_function_state_of_the_same_name() -> None:
    class Own(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            state = context.window_state().get_state(ValueStateDescriptor("count", str))
            state.update("mine")
            yield state.value()

    run = windowed(CountTrigger.of(2), spec=Spec.process(Own())).push(*[("a", 1)] * 4, at=1)
    assert run.values == ["mine", "mine"]


def test_trigger_context_has_clocks_and_metrics_and_deletes_timers() -> None:
    class Probe(Trigger[Any, Any]):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            seen.append((timestamp, ctx.get_current_watermark(), ctx.get_current_processing_time()))
            ctx.get_metric_group().counter("seen").inc()
            ctx.register_event_time_timer(50)
            ctx.register_processing_time_timer(60)
            if element[1] == "delete":
                ctx.delete_event_time_timer(50)
                ctx.delete_processing_time_timer(60)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
            fired.append(("event", time))
            return TriggerResult.CONTINUE

        def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
            fired.append(("processing", time))
            return TriggerResult.CONTINUE

        def clear(self, window: Any, ctx: Any) -> None:
            pass

    seen: list[Any] = []
    fired: list[Any] = []
    run = OperatorRun(WindowOperator(WINDOWS, Spec.process(Counts()), KEY, trigger=Probe()))
    run.at_time(5).watermark(3).push(("a", "keep"), ("b", "delete"), at=[10, 11]).watermark(60).at_time(60)
    assert seen == [(10, 3, 5), (11, 3, 5)]
    assert fired == [("event", 50), ("processing", 60)]
    assert run.metrics.counters["seen"].count == 2


# --- merging ----------------------------------------------------------------------------------------------------


class NotMergeable(PurgeOnZero):
    pass


def test_a_trigger_that_cannot_merge_is_refused_with_sessions() -> None:
    with pytest.raises(InvalidJob, match="NotMergeable cannot merge"):
        WindowOperator(EventTimeSessionWindows.with_gap(10), Spec.reduce(add), KEY, trigger=NotMergeable())


def test_count_trigger_continues_its_count_over_merged_sessions() -> None:
    """The state of the trigger merges with the windows."""
    run = windowed(CountTrigger.of(3), EventTimeSessionWindows.with_gap(10))
    run.push(("a", 1), ("a", 2), ("a", 4), at=[0, 15, 8])
    assert run.values == [("a", 7)]


class Largest(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        return [max(accumulator[0], value), accumulator[1] + 1]

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [max(acc_a[0], acc_b[0]), acc_a[1] + acc_b[1]]


def test_all_mergeable_kinds_of_trigger_state_merge() -> None:
    class Remembers(Trigger[Any, Any]):
        seen = ListStateDescriptor("seen", int)
        total = ReducingStateDescriptor("total", lambda a, b: a + b, int)
        largest = AggregatingStateDescriptor("largest", Largest())

        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            states = [ctx.get_partitioned_state(d) for d in (self.seen, self.total, self.largest)]
            for state in states:
                state.add(element[1])
            views.append((sorted(states[0].get()), states[1].get(), states[2].get()))
            return TriggerResult.CONTINUE

        def can_merge(self) -> bool:
            return True

        def on_merge(self, window: Any, ctx: Any) -> None:
            for descriptor in (self.seen, self.total, self.largest):
                ctx.merge_partitioned_state(descriptor)

        def clear(self, window: Any, ctx: Any) -> None:
            for descriptor in (self.seen, self.total, self.largest):
                ctx.get_partitioned_state(descriptor).clear()

    views: list[Any] = []
    operator = WindowOperator(EventTimeSessionWindows.with_gap(10), Spec.process(Counts()), KEY, trigger=Remembers())
    run = OperatorRun(operator).push(("a", 1), ("a", 5), ("a", 3), at=[0, 15, 8])
    assert views == [([1], 1, (1, 1)), ([5], 5, (5, 1)), ([1, 3, 5], 9, (5, 3))]
    assert run.end().backend.entry_count() == 0


def test_value_state_of_a_trigger_cannot_be_merged() -> None:
    class KeepsValue(NotMergeable):
        def can_merge(self) -> bool:
            return True

        def on_merge(self, window: Any, ctx: Any) -> None:
            ctx.merge_partitioned_state(ValueStateDescriptor("v", int))

    run = windowed(KeepsValue(), EventTimeSessionWindows.with_gap(10))
    with pytest.raises(InvalidJob, match="cannot be merged"):
        run.push(("a", 1), ("a", 1), at=[0, 5])


def test_late_records_of_merging_windows_with_their_own_trigger_go_to_the_late_output() -> None:
    run = windowed(CountTrigger.of(1), EventTimeSessionWindows.with_gap(10), late_tag=OutputTag("late"))
    run.watermark(100).push(("a", 1), ("a", 2), at=[5, 95])
    assert run.values == [("a", 2)]
    assert run.side("late") == [("a", 1)]


def test_a_custom_trigger_continues_windows_that_were_grouped_before() -> None:
    """A job that gets a trigger keeps the contents of its open windows, and the windows still end."""
    before = OperatorRun(WindowOperator(WINDOWS, Spec.reduce(add), KEY)).push(("a", 1), ("b", 2), at=[1, 2])
    after = WindowOperator(WINDOWS, Spec.reduce(add), KEY, trigger=ContinuousEventTimeTrigger.of(30))
    again = before.restart(after).push(("a", 5), at=3).end()
    assert again.values[-2:] == [("a", 6), ("b", 2)]
    assert again.backend.entry_count() == 0


def test_grouping_continues_windows_that_had_a_trigger_before() -> None:
    before = windowed(ContinuousEventTimeTrigger.of(30)).push(("a", 1), ("b", 2), at=[1, 2])
    after = WindowOperator(WINDOWS, Spec.reduce(add), KEY)
    again = before.restart(after).push(("a", 5), at=3).end()
    assert again.values == [("a", 6), ("b", 2)]
    assert list(again.backend.namespaces("window-contents")) == []
