"""Records behind the watermark: dropped, sent to a side output, or accepted during the allowed lateness."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.taskmanager.operators.window.operator import LATE_RECORDS_METRIC, WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.operators.window.windows import KEY, LATE, FirstOrUpdate, Spec, add


def test_late_records_are_dropped_and_counted(grouping: str) -> None:
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, grouping=grouping))
    run.push(("a", 1), at=5).watermark(9).push(("a", 1), ("a", 2), at=[5, 12]).end()
    assert run.values == [("a", 1), ("a", 2)]
    assert run.metrics.counters[LATE_RECORDS_METRIC].count == 1


class Counting(ProcessWindowFunction):
    """A function that emits (id, window end, count)."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().end, len(list(elements))


def test_late_records_go_to_the_side_output_with_their_timestamps() -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(10_000), Spec.process(Counting()), KEY, late_tag=LATE)
    run = OperatorRun(operator).push(("s", 1), ("s", 1), at=[1, 2]).watermark(10_000).push(("s", 9), at=9_999)
    assert run.values == [("s", 10_000, 2)]
    assert run.output.sides == {"late": [(("s", 9), 9_999)]}


@pytest.mark.parametrize("spec", [Spec.process(FirstOrUpdate()), Spec.reduce(add, FirstOrUpdate())])
def test_allowed_lateness_updates_results_until_its_end(spec: WindowFunctionSpec, grouping: str) -> None:
    """The windows of 10 s have an allowed lateness of 5 s."""
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


def test_a_late_record_of_another_key_fires_only_that_key(grouping: str) -> None:
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


def test_a_restored_window_that_has_fired_fires_only_for_late_records(grouping: str) -> None:
    operator = WindowOperator(
        TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, allowed_lateness=100, late_tag=LATE, grouping=grouping
    )
    run = OperatorRun(operator).push(("a", 1), ("b", 2), at=[1, 2]).watermark(50)
    again = run.restart()
    again.push(("a", 5), at=3)
    assert again.take() == [("a", 6)]
    assert again.watermark(60).take() == []
    assert again.watermark(109).backend.entry_count() == 0


def test_late_records_before_a_failure_are_late_after_it(grouping: str) -> None:
    operator = WindowOperator(TumblingEventTimeWindows.of(10), Spec.reduce(add), KEY, late_tag=LATE, grouping=grouping)
    run = OperatorRun(operator).push(("a", 1), at=1).watermark(50)
    again = run.restart().push(("a", 7), at=2).end()
    assert again.values == []
    assert again.side("late") == [("a", 7)]
