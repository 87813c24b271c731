"""The window operator: when a window fires and what it emits, in event time and processing time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import ProcessWindowFunction, ReduceFunction
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import WATERMARK, OperatorRun
from tests.unit.taskmanager.operators.window.windows import KEY, LATE, Mean, Spec, WithEnd, add


def test_average_sensor_readings_over_five_seconds(grouping: str) -> None:
    """The window is [0, 5000). Its result has the last ms of the window as timestamp and is emitted before the
    watermark."""
    operator = WindowOperator(
        TumblingEventTimeWindows.of(5000), Spec.aggregate(Mean(), WithEnd()), KEY, grouping=grouping
    )
    run = OperatorRun(operator)
    celsius = [("sensor_1", (fahrenheit - 32) * 5 / 9) for fahrenheit in (32, 50, 68)]
    run.push(*celsius, at=[1000, 1500, 4999]).watermark(4998)
    assert run.results == []
    run.push(("sensor_1", 0.0), at=[10_000]).watermark(9998)
    assert run.events[1:] == [(("sensor_1", 10.0, 5000), 4999), (WATERMARK, 9998)]


def test_windows_of_each_key_are_independent_and_never_empty(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    run.push(("a", 1), ("b", 2), ("a", 3), at=[1, 2, 35]).end()
    assert run.results == [(("a", 1), 9), (("b", 2), 9), (("a", 3), 39)]


def test_minimum_and_average_per_fifteen_seconds(grouping: str) -> None:
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
    operator = WindowOperator(
        SlidingEventTimeWindows.of(10, 25), Spec.reduce(add), KEY, late_tag=LATE, grouping=grouping
    )
    run = OperatorRun(operator).push(("a", 1), ("a", 10), at=[5, 15]).end()
    assert run.values == [("a", 1)]
    assert run.side("late") == []


def test_bubbles_of_the_tunnel_count_by_event_time() -> None:
    """300 records arrive live, and 250 arrive two minutes later. They reach 500 within one minute of event time."""
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


def test_windows_leave_no_state(grouping: str) -> None:
    operator = WindowOperator(
        SlidingEventTimeWindows.of(20, 10), Spec.reduce(add), KEY, allowed_lateness=50, grouping=grouping
    )
    run = OperatorRun(operator).push(*[(key, 1) for key in "abcdef"], at=[1, 2, 3, 14, 15, 16])
    assert run.backend.entry_count() > 0
    run.watermark(79)
    assert run.backend.entry_count() == 0
    assert list(run.timers.event_time_timers()) == []


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


@pytest.mark.parametrize(
    ("assigner", "windows"),
    [
        (TumblingEventTimeWindows.of(100), 1),
        (SlidingEventTimeWindows.of(90, 30), 3),
        (EventTimeSessionWindows.with_gap(10), 1),
    ],
)
def test_windows_end_with_the_end_of_time(assigner: Any, windows: int, grouping: str) -> None:
    """The result of a count window has the latest of all timestamps."""
    run = OperatorRun(WindowOperator(assigner, Spec.reduce(add), KEY, allowed_lateness=50, grouping=grouping))
    run.push(("a", 1), at=[MAX_TIMESTAMP]).watermark(1_000).push(("a", 2), at=[MAX_TIMESTAMP])
    run.snapshot()
    assert run.results == []
    run.end()
    assert run.results == [(("a", 3), MAX_TIMESTAMP - 1)] * windows
