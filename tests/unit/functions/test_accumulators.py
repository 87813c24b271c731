from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import MapFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.functions import accumulators as acc
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess


@pytest.mark.parametrize(
    ("make", "values", "local", "of_two"),
    [
        (acc.IntCounter, [1, 2], 3, 6),
        (acc.DoubleCounter, [0.5, 1.0], 1.5, 3.0),
        (acc.AverageAccumulator, [1, 3], 2.0, 2.0),
        (acc.ListAccumulator, ["a"], ["a"], ["a", "a"]),
        (acc.Histogram, [3, 3, 1], {1: 1, 3: 2}, {1: 2, 3: 4}),
    ],
)
def test_local_accumulators_are_merged(make: Any, values: list[Any], local: Any, of_two: Any) -> None:
    one = make()
    for value in values:
        one.add(value)
    assert one.get_local_value() == local
    assert acc.merge_accumulators(one.kind, [one.parts(), one.parts()]) == of_two
    assert acc.is_known(one)
    one.reset_local()
    assert acc.merge_accumulators(one.kind, [one.parts()]) == make().get_local_value()


class Adds(MapFunction):
    def __init__(self, names: list[str], get: str, accumulator: Any = None) -> None:
        self.names = names
        self.get = get
        self.accumulator = accumulator

    def open(self, runtime_context: Any) -> None:
        for name in self.names:
            runtime_context.add_accumulator(name, self.accumulator or acc.IntCounter(1))
        self.counter = runtime_context.get_accumulator(self.get)

    def map(self, value: int) -> int:
        self.counter.add(value)
        return value


def run(function: MapFunction) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2, 3]).map(function).name("adds").print()
    with executing_on(Session(InProcess())):
        return env.execute("counted")


def test_the_result_of_the_job_has_the_accumulators() -> None:
    assert run(Adds(["sum", "other"], "sum")).get_all_accumulator_results() == {"other": 1, "sum": 7}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Adds(["sum", "sum"], "sum"), "'sum' already"),
        (Adds(["sum"], "total"), "accumulator 'total' does not exist; existing accumulators: 'sum'"),
        (Adds(["sum"], "sum", accumulator=[]), "not an accumulator of"),
    ],
)
def test_errors_name_the_operator_and_the_line(function: MapFunction, message: str) -> None:
    function.accumulator = function.accumulator if message != "not an accumulator of" else {"not": "one"}  # type: ignore[attr-defined]
    with pytest.raises(InvalidJob, match=message) as caught:
        run(function)
    assert caught.value.operator == "adds"
    assert "test_accumulators.py" in caught.value.location
