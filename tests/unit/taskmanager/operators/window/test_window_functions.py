"""The arguments of a window's function: key, window, state, clocks, and the elements after an evictor."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, UserFunctionError
from penstock.datastream.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
    WindowFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from penstock.functions.field_reduce import AggregateKind
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.operators.window.windows import KEY, LATE, SESSIONS, FirstOrUpdate, Mean, Spec, add, gather


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


def test_window_functions_have_clocks_and_side_outputs(grouping: str) -> None:
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
    """A function with global state for all windows of a key. Window state and the function's own handles are separate."""

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


def test_window_state_and_global_state_are_separate(grouping: str) -> None:
    spec = Spec.reduce(add, RunningTotal())
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, KEY, grouping=grouping))
    run.push(("a", 1), ("a", 10), at=[1, 12]).end()
    assert run.values == [("a", 1, [0], 1), ("a", 11, [0, 10], 1)]
    assert sorted(name for name in ("own",) if list(run.backend.namespaces(name))) == []


def test_merging_windows_have_no_window_state() -> None:
    run = OperatorRun(WindowOperator(SESSIONS, Spec.process(FirstOrUpdate()), KEY)).push(("a", 1), at=1)
    with pytest.raises(InvalidJob, match="global_state"):
        run.end()


def test_errors_of_window_functions_name_the_window_and_the_key(grouping: str) -> None:
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


def test_evictor_keeps_the_newest_records_of_a_window() -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(100), Spec.process(gather), KEY, evictor=TimeEvictor.of(10))
    run = OperatorRun(operator).push(("a", 1), ("a", 2), ("a", 3), at=[5, 50, 55]).end()
    assert run.values == [("a", 0, 100, [2, 3])]


@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.aggregate(Mean())])
def test_an_evictor_runs_before_a_fold(spec: WindowFunctionSpec) -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(100), spec, KEY, evictor=CountEvictor.of(2))
    run = OperatorRun(operator).push(*[("a", n) for n in (1, 2, 4)], at=1).end()
    assert run.values == [("a", 6) if spec.kind == "reduce" else 3.0]


def test_the_remaining_elements_of_an_evictor_stay_in_the_window() -> None:
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10), Spec.process(gather), KEY, evictor=CountEvictor.of(2), allowed_lateness=100
    )
    run = OperatorRun(operator).push(*[("a", n) for n in (1, 2, 3)], at=1).watermark(10)
    assert run.take() == [("a", 0, 10, [2, 3])]
    assert run.push(("a", 4), at=2).take() == [("a", 0, 10, [3, 4])]


def test_window_join_pairs_within_a_window_only() -> None:
    """The result is the cross product per key and window. Records half a second apart across the full hour are no pair."""

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


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(10)])
def test_a_window_refuses_records_without_the_field_that_it_sums(assigner: Any) -> None:
    run = OperatorRun(WindowOperator(assigner, Spec.field("sum", "m"), itemgetter("k")))
    with pytest.raises(RecordFormatError, match=r"sum of the field 'm': no field 'm' in the record .*the fields k, n"):
        run.push({"k": 1, "n": 2}, at=1)


ALL_WINDOWS = [
    TumblingEventTimeWindows.of(10),
    SlidingEventTimeWindows.of(10, 5),
    EventTimeSessionWindows.with_gap(10),
    CountTumblingWindowAssigner.of(2),
]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", ["sum", "min", "max", "min_by", "max_by"])
@pytest.mark.parametrize("assigner", ALL_WINDOWS, ids=lambda assigner: type(assigner).__name__)
def test_a_window_refuses_a_record_without_the_field_anywhere_in_a_batch(
    assigner: Any, kind: AggregateKind, backend: str
) -> None:
    """The first record of each window is not combined, so only a check of all records finds the missing field."""
    good, other, bad = {"k": 1, "m": 2}, {"k": 2, "m": 3}, {"k": 3, "n": 2}
    for batch in ([good, bad], [good, other, bad, good], [good, {"k": 1, "n": 2}]):
        run = OperatorRun(WindowOperator(assigner, Spec.field(kind, "m"), itemgetter("k")), backend=backend)
        with pytest.raises(
            RecordFormatError, match=f"{kind} of the field 'm': no field 'm' in the record .*the fields k, n"
        ):
            run.push(*batch, at=1).end()
