"""Grouped windows and windows by pane give the same results for every program and input.

Random programs (assigner, lateness, function) run on random histories (batches, watermarks, clock, snapshots). A
restore uses another parallelism, and either implementation. Each history runs once grouped and once by pane.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    FieldAggregate,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing import OperatorHarness
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec

LATE = OutputTag("late")
FIRED = ValueStateDescriptor("fired", int, default=0)


def concatenated(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


class Span(AggregateFunction):
    """An aggregate (first, last, number) that shows the order of arrival."""

    def create_accumulator(self) -> Any:
        return [None, None, 0]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0], acc_b[1], acc_a[2] + acc_b[2]]

    def add(self, value: Any, accumulator: Any) -> Any:
        first = value[1] if accumulator[0] is None else accumulator[0]
        return [first, value[1], accumulator[2] + 1]

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)


class WithState(ProcessWindowFunction):
    """A function that counts its firings per window and per key."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(FIRED)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        yield key, context.window().start, context.window().end, *counts, *elements

    def clear(self, context: Any) -> None:
        context.window_state().get_state(FIRED).clear()


class Cleared(ProcessWindowFunction):
    """A function that counts its firings and clean-ups per key, for windows without window state."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        state = context.global_state().get_state(FIRED)
        state.update((state.value() or 0) + 1)
        yield key, context.window().start, context.window().end, state.value(), *elements

    def clear(self, context: Any) -> None:
        state = context.global_state().get_state(FIRED)
        state.update(state.value() + 100)


def plain(key: Any, context: Any, elements: Any) -> Any:
    yield key, context.window().start, *elements


def applied(key: Any, window: Any, elements: Any) -> Any:
    yield key, window.max_timestamp(), [element[2] for element in elements]


FUNCTIONS = {
    "reduce": lambda: WindowFunctionSpec.reduce(concatenated),
    "reduce, process": lambda: WindowFunctionSpec.reduce(concatenated, WithState()),
    "aggregate": lambda: WindowFunctionSpec.aggregate(Span()),
    "aggregate, process": lambda: WindowFunctionSpec.aggregate(Span(), WithState()),
    "process": lambda: WindowFunctionSpec.process(plain),
    "process, state": lambda: WindowFunctionSpec.process(WithState()),
    "apply": lambda: WindowFunctionSpec.apply(applied),
    "fields": lambda: WindowFunctionSpec.aggregate(
        FieldAggregate.of(FieldAggregate.count(), FieldAggregate.max(2), FieldAggregate.sum(2)), plain
    ),
}

OF_SESSIONS = {
    **{name: FUNCTIONS[name] for name in ("reduce", "aggregate", "fields")},
    "reduce, process": lambda: WindowFunctionSpec.reduce(concatenated, Cleared()),
    "aggregate, process": lambda: WindowFunctionSpec.aggregate(Span(), Cleared()),
}

sizes = st.integers(1, 40)
event_time = st.one_of(
    st.builds(lambda size, offset: TumblingEventTimeWindows.of(size, offset % size), sizes, sizes),
    st.builds(lambda size, slide, offset: SlidingEventTimeWindows.of(size, slide, offset % slide), sizes, sizes, sizes),
)
processing_time = st.one_of(
    st.builds(TumblingProcessingTimeWindows.of, sizes),
    st.builds(
        lambda size, slide, offset: SlidingProcessingTimeWindows.of(size, slide, offset % slide), sizes, sizes, sizes
    ),
)
gaps = st.integers(1, 30)
event_time_sessions = st.one_of(
    st.builds(EventTimeSessionWindows.with_gap, gaps),
    st.builds(lambda gap: EventTimeSessionWindows.with_dynamic_gap(lambda value: 1 + value[2] % gap), gaps),
)
processing_time_sessions = st.one_of(
    st.builds(ProcessingTimeSessionWindows.with_gap, gaps),
    st.builds(lambda gap: ProcessingTimeSessionWindows.with_dynamic_gap(lambda value: 1 + value[2] % gap), gaps),
)
records = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 80)), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("records"), records),
        st.tuples(st.just("clock"), st.integers(0, 15)),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Outcome:
    """The output of a program, step by step. The order of keys within a step is not defined."""

    results: list[Any]
    late: list[Any]
    entries: int


def run(make: Any, history: list[Any], backend: str, groupings: list[str], *, is_event_time: bool) -> Outcome:
    """Run a program. `groupings` are those of the first run and of each run after a rescale, in turn."""
    harness = OperatorHarness(make(groupings[0]), parallelism=2, backend=backend)
    results: list[Any] = []
    number = now = restarts = 0
    for kind, argument in [*history, ("end", None)]:
        if kind == "records":
            values = [(key, f"{number + i},", number + i) for i, (key, _) in enumerate(argument)]
            number += len(values)
            harness.push(*values, timestamp=[time for _, time in argument])
        elif kind == "rescale":
            restarts += 1
            harness.restore(harness.snapshot(), argument, make(groupings[restarts % len(groupings)]))
        elif is_event_time:
            now = 10_000 if kind == "end" else now + argument
            harness.advance_watermark(now)
        else:
            now = 10_000 if kind == "end" else now + argument
            harness.advance_processing_time(now)
        results.append(sorted(harness.take(), key=repr))
    outcome = Outcome(results, sorted(harness.side_outputs("late"), key=repr), harness.state_size())
    harness.close()
    return outcome


BACKENDS = ("hashmap", "rocksdb")
BY_BACKEND = ("hashmap", pytest.param("rocksdb", marks=pytest.mark.slow))
HISTORY = [
    ("records", [("a", 3), ("b", 12), ("c", 25), ("a", 14)]),
    ("clock", 11),
    ("records", [("a", 4), ("d", 2), ("b", 31)]),
    ("rescale", 3),
    ("records", [("a", 5), ("c", 26)]),
    ("clock", 15),
    ("rescale", 1),
    ("records", [("b", 1), ("a", 44)]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(10, 3), SlidingEventTimeWindows.of(20, 8)], ids=repr)
def test_one_history_has_equal_results_on_every_backend(assigner: Any, backend: str) -> None:
    def make(grouping: str) -> WindowOperator:
        function = FUNCTIONS["aggregate, process"]()
        return WindowOperator(assigner, function, itemgetter(0), allowed_lateness=7, late_tag=LATE, grouping=grouping)

    outcome = run(make, HISTORY, backend, ["never"], is_event_time=True)
    assert outcome == run(make, HISTORY, backend, ["auto"], is_event_time=True)
    assert outcome == run(make, HISTORY, backend, ["never", "auto"], is_event_time=True)
    assert outcome.late
    assert sum(map(len, outcome.results)) > 5


@pytest.mark.parametrize("backend", BY_BACKEND)
@pytest.mark.parametrize("function", FUNCTIONS)
@given(assigner=event_time, history=steps, lateness=st.sampled_from([0, 7, 30]))
@settings(max_examples=15, deadline=None)
def test_event_time_windows_have_equal_results(
    function: str, backend: str, assigner: Any, history: list[Any], lateness: int
) -> None:
    def make(grouping: str) -> WindowOperator:
        return WindowOperator(
            assigner, FUNCTIONS[function](), itemgetter(0), allowed_lateness=lateness, late_tag=LATE, grouping=grouping
        )

    by_pane = run(make, history, backend, ["never"], is_event_time=True)
    assert by_pane == run(make, history, backend, ["auto"], is_event_time=True)
    assert by_pane == run(make, history, backend, ["auto", "never"], is_event_time=True)


@pytest.mark.parametrize("backend", BY_BACKEND)
@pytest.mark.parametrize("function", FUNCTIONS)
@given(assigner=processing_time, history=steps)
@settings(max_examples=8, deadline=None)
def test_processing_time_windows_have_equal_results(
    function: str, backend: str, assigner: Any, history: list[Any]
) -> None:
    def make(grouping: str) -> WindowOperator:
        return WindowOperator(assigner, FUNCTIONS[function](), itemgetter(0), grouping=grouping)

    by_pane = run(make, history, backend, ["never"], is_event_time=False)
    assert by_pane == run(make, history, backend, ["auto"], is_event_time=False)
    assert by_pane == run(make, history, backend, ["never", "auto"], is_event_time=False)


@pytest.mark.parametrize("backend", BY_BACKEND)
@pytest.mark.parametrize("function", OF_SESSIONS)
@given(assigner=event_time_sessions, history=steps)
@settings(max_examples=20, deadline=None)
def test_event_time_sessions_have_equal_results(function: str, backend: str, assigner: Any, history: list[Any]) -> None:
    def make(grouping: str) -> WindowOperator:
        return WindowOperator(assigner, OF_SESSIONS[function](), itemgetter(0), late_tag=LATE, grouping=grouping)

    by_pane = run(make, history, backend, ["never"], is_event_time=True)
    assert by_pane == run(make, history, backend, ["auto"], is_event_time=True)
    assert by_pane == run(make, history, backend, ["auto", "never"], is_event_time=True)
    assert by_pane == run(make, history, backend, ["never", "auto"], is_event_time=True)


@pytest.mark.parametrize("backend", BY_BACKEND)
@pytest.mark.parametrize("function", OF_SESSIONS)
@given(assigner=processing_time_sessions, history=steps)
@settings(max_examples=15, deadline=None)
def test_processing_time_sessions_have_equal_results(
    function: str, backend: str, assigner: Any, history: list[Any]
) -> None:
    def make(grouping: str) -> WindowOperator:
        return WindowOperator(assigner, OF_SESSIONS[function](), itemgetter(0), grouping=grouping)

    by_pane = run(make, history, backend, ["never"], is_event_time=False)
    assert by_pane == run(make, history, backend, ["auto"], is_event_time=False)
    assert by_pane == run(make, history, backend, ["auto", "never"], is_event_time=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_history_of_sessions_has_equal_results_on_every_backend(backend: str) -> None:
    def make(grouping: str) -> WindowOperator:
        function = OF_SESSIONS["aggregate, process"]()
        return WindowOperator(
            EventTimeSessionWindows.with_gap(9), function, itemgetter(0), late_tag=LATE, grouping=grouping
        )

    outcome = run(make, HISTORY, backend, ["never"], is_event_time=True)
    assert outcome == run(make, HISTORY, backend, ["auto"], is_event_time=True)
    assert outcome == run(make, HISTORY, backend, ["auto", "never"], is_event_time=True)
    assert outcome.late
    assert sum(map(len, outcome.results)) > 4


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(10), SlidingEventTimeWindows.of(20, 10)], ids=repr)
def test_windows_of_whole_lists_need_no_timer_for_each_key(assigner: Any) -> None:
    run = OperatorRun(WindowOperator(assigner, WindowFunctionSpec.process(plain), itemgetter(0)))
    run.push(("a", 1), ("b", 2), ("a", 3), at=[1, 2, 3])
    assert list(run.timers.event_time_timers()) == []
    assert sorted(value[2:] for value in run.watermark(19).values if value[1] == 0) == [
        (("a", 1), ("a", 3)),
        (("b", 2),),
    ]
    run.end()
    assert run.backend.entry_count() == 0
