"""Windows without time: count windows and the global window."""

from __future__ import annotations

import pytest

from penstock.datastream.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    EventTimeTrigger,
    GlobalWindows,
)
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.operators.window.windows import KEY, Spec, add


def test_count_windows_of_two_per_colour() -> None:
    """W,B,W,G,B gives {W,W} and {B,B}. G waits for a second record."""
    pairs = Spec.process(lambda key, ctx, elements: [(key, len(list(elements)))])
    run = OperatorRun(WindowOperator(CountTumblingWindowAssigner.of(2), pairs, lambda v: v))
    run.push("W", "B", "W", "G", "B")
    assert run.values == [("W", 2), ("B", 2)]
    assert run.push("G").values[-1] == ("G", 2)


def test_full_count_windows_leave_no_contents() -> None:
    """Only the position of each key remains."""
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
    run = OperatorRun(WindowOperator(GlobalWindows.create(), Spec.reduce(add), KEY))
    assert run.push(("a", 1), at=1).end().at_time(10**15).values == []


@pytest.mark.parametrize("stamps", [[1, 2, 3], None])
@pytest.mark.parametrize("spec", [Spec.reduce(add), Spec.reduce(add, lambda key, context, elements: elements)])
def test_a_global_window_with_the_event_time_trigger_fires_at_the_end_of_the_input(
    spec: WindowFunctionSpec, stamps: list[int] | None, grouping: str
) -> None:
    """Batch mode gets its final results in this way. The records need no timestamps."""

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
