"""map, flat_map, filter, project and functions on Arrow batches."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, UserFunctionError
from penstock.common.types import Row
from penstock.datastream.functions import FilterFunction, FlatMapFunction, MapFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_dicts, rows_as_tuples
from penstock.taskmanager.operators.simple import (
    TIMESTAMP_COLUMN,
    FilterOperator,
    FlatMapOperator,
    MapBatchesOperator,
    MapOperator,
    ProjectOperator,
)
from penstock.testing.operator_run import OperatorRun


def columns(timestamps: list[int] | None = None, **fields: Any) -> ColumnBatch:
    batch = pa.RecordBatch.from_pydict(fields)
    return ColumnBatch(batch, None if timestamps is None else np.array(timestamps), rows_as_dicts)


def test_map_increments_every_record_and_keeps_timestamps() -> None:
    """E12."""
    run = OperatorRun(MapOperator(lambda v: v + 1)).push(1, 2, 3, 4, at=[10, 20, 30, 40])
    assert run.results == [(2, 10), (3, 20), (4, 30), (5, 40)]


def test_map_projects_the_id() -> None:
    """E15, first half."""
    assert OperatorRun(MapOperator(lambda r: r["id"])).push({"id": "sensor_7", "t": 1.0}).values == ["sensor_7"]


class Person(NamedTuple):
    name: str
    age: int


@pytest.mark.parametrize(
    ("adult", "people", "expected"),
    [
        (lambda p: p[1] > 18, [("Adam", 17), ("Sarah", 23)], ["Sarah"]),
        (lambda p: p.age > 18, [Person("Adam", 17), Person("Sarah", 23)], ["Sarah"]),
        (lambda p: p["age"] > 18, [Row(name="Alex", age=42), Row(name="Wendy", age=23)], ["Alex", "Wendy"]),
    ],
)
def test_filter_keeps_adults(adult: Any, people: list[Any], expected: list[str]) -> None:
    """E13: tuple, class and Row."""
    assert [person[0] for person in OperatorRun(FilterOperator(adult)).push(*people).values] == expected


def test_filter_keeps_the_boundary_and_the_timestamps_of_what_it_keeps() -> None:
    """E14."""
    run = OperatorRun(FilterOperator(lambda t: t >= 25)).push(24.9, 25.0, 30.0, at=[1, 2, 3])
    assert run.results == [(25.0, 2), (30.0, 3)]


def test_filter_that_drops_all_emits_nothing() -> None:
    run = OperatorRun(FilterOperator(lambda v: False)).push(1, 2)
    assert run.output.batches == []


def test_filter_passes_a_columnar_batch_on_untouched_when_it_keeps_all() -> None:
    batch = columns(t=[1, 2])
    assert OperatorRun(FilterOperator(lambda r: True)).push_batch(batch).output.batches == [batch]


def test_flat_map_splits_the_id() -> None:
    """E15, second half."""
    run = OperatorRun(FlatMapOperator(lambda s: s.split("_"))).push("sensor_7", at=5)
    assert run.results == [("sensor", 5), ("7", 5)]


def test_flat_map_passes_doubles_and_drops_colours() -> None:
    """E16; a generator, a list and None are all results."""

    def by_colour(colour: str) -> Any:
        if colour == "white":
            return [colour]
        if colour == "black":
            return (colour for _ in range(2))
        return None

    run = OperatorRun(FlatMapOperator(by_colour)).push("white", "black", "gray", "white", at=[1, 2, 3, 4])
    assert run.results == [("white", 1), ("black", 2), ("black", 2), ("white", 4)]


class Contains(FilterFunction):
    def __init__(self, word: str) -> None:
        self.word = word

    def filter(self, value: str) -> bool:
        return self.word in value


class ContainsKeyWord(FilterFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.word = runtime_context.get_job_parameter("keyWord", "")

    def filter(self, value: str) -> bool:
        return self.word in value


TWEETS = ["I love flink", "bananas", "apples", "flinky"]


@pytest.mark.parametrize("keep", [lambda t: "flink" in t, Contains("flink")])
def test_keyword_filter_as_function_and_as_object(keep: Any) -> None:
    """E25."""
    assert OperatorRun(FilterOperator(keep)).push(*TWEETS).values == ["I love flink", "flinky"]


def test_keyword_filter_reads_a_global_job_parameter() -> None:
    """E25, global parameter variant."""
    run = OperatorRun(FilterOperator(ContainsKeyWord()), job_parameters={"keyWord": "flink"})
    assert run.push(*TWEETS).values == ["I love flink", "flinky"]


class OwnParity(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def flat_map(self, value: int) -> Any:
        if value % 2 == self.subtask:
            yield self.subtask, value


@pytest.mark.parametrize(("subtask", "expected"), [(0, [(0, 2), (0, 4)]), (1, [(1, 1), (1, 3)])])
def test_subtask_filter_knows_its_index(subtask: int, expected: list[Any]) -> None:
    """E26."""
    run = OperatorRun(FlatMapOperator(OwnParity()), subtask=subtask, parallelism=2)
    assert run.push(1, 2, 3, 4).values == expected


class CountPerKey(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

    def map(self, value: str) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value, count


def test_map_on_a_keyed_stream_has_keyed_state() -> None:
    run = OperatorRun(MapOperator(CountPerKey(), lambda v: v))
    assert run.push("a", "b", "a").push("a").values == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def test_error_of_user_code_names_operator_line_record_and_cause() -> None:
    run = OperatorRun(MapOperator(lambda v: 1 // v))
    with pytest.raises(UserFunctionError) as caught:
        run.push(2, 1, 0, 3)
    text = str(caught.value)
    assert "record 2 of a batch of 4: 0" in text
    assert "ZeroDivisionError" in text
    assert "test_simple_operators.py" in text
    assert "operator under test" in text
    assert "job.py:7" in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_error_message_cuts_long_records() -> None:
    with pytest.raises(UserFunctionError) as caught:
        OperatorRun(MapOperator(int)).push("x" * 10_000)
    assert len(str(caught.value)) < 1500
    assert "10002 characters" in str(caught.value)


@pytest.mark.parametrize("operator", [FilterOperator(lambda v: v["x"]), FlatMapOperator(lambda v: v["x"])])
def test_error_position_is_right_in_every_operator(operator: Any) -> None:
    with pytest.raises(UserFunctionError, match="record 1 of a batch of 3: 5"):
        OperatorRun(operator).push({"x": [1]}, 5, {"x": [2]}, at=[1, 2, 3])


def test_error_in_a_generator_names_the_record_it_was_made_for() -> None:
    def fails_late(value: int) -> Any:
        yield value
        if value == 7:
            raise RuntimeError("late")

    with pytest.raises(UserFunctionError, match="record 1 of a batch of 2: 7 raised RuntimeError: late"):
        OperatorRun(FlatMapOperator(fails_late)).push(6, 7)


def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(InvalidJob, match="map"):
        MapOperator(42)


@pytest.mark.parametrize(
    ("record", "indexes", "expected"),
    [
        ((1, "a", 2.0), (2, 0), (2.0, 1)),
        ((1, "a", 2.0), (1,), ("a",)),
        (Row(1, "a"), (1,), Row("a")),
        (Row(x=1, y="a"), (1, 0), Row(y="a", x=1)),
    ],
)
def test_project_keeps_the_fields_named(record: Any, indexes: tuple[int, ...], expected: Any) -> None:
    assert OperatorRun(ProjectOperator(indexes)).push(record, at=3).results == [(expected, 3)]


def test_project_of_columns_stays_columns() -> None:
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", "y"]}), np.array([5, 6]), rows_as_tuples)
    run = OperatorRun(ProjectOperator([1])).push_batch(batch)
    assert isinstance(run.output.batches[0], ColumnBatch)
    assert run.results == [(("x",), 5), (("y",), 6)]


def test_project_of_a_missing_field_names_the_record() -> None:
    with pytest.raises(UserFunctionError, match=r"\(1, 2\)"):
        OperatorRun(ProjectOperator([5])).push((1, 2))


HOT = pc.field("t") > 25


def test_filter_expression_keeps_columns_as_columns() -> None:
    run = OperatorRun(FilterOperator(HOT)).push_batch(columns([1, 2, 3], t=[20, 30, 40], id=["a", "b", "c"]))
    assert isinstance(run.output.batches[0], ColumnBatch)
    assert run.results == [({"t": 30, "id": "b"}, 2), ({"t": 40, "id": "c"}, 3)]


def test_filter_expression_on_rows_keeps_the_records_themselves() -> None:
    records = [Row(t=20, id="a"), Row(t=30, id="b")]
    assert OperatorRun(FilterOperator(HOT)).push(*records, at=[1, 2]).results == [(records[1], 2)]


def test_filter_expression_on_an_unknown_field_names_the_fields() -> None:
    with pytest.raises(UserFunctionError, match="columns id"):
        OperatorRun(FilterOperator(HOT)).push({"id": 1})


def test_map_batches_sees_event_times_and_may_drop_records() -> None:
    def hot(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["t", TIMESTAMP_COLUMN]
        return batch.filter(pc.field("t") > 25)

    run = OperatorRun(MapBatchesOperator(hot)).push_batch(columns([1, 2, 3], t=[20, 30, 40]))
    assert run.results == [({"t": 30}, 2), ({"t": 40}, 3)]


def test_map_batches_keeps_the_times_when_the_number_of_records_is_the_same() -> None:
    def celsius(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"c": pc.divide(pc.subtract(batch["f"], 32), 2)})

    run = OperatorRun(MapBatchesOperator(celsius)).push({"f": 32}, {"f": 42}, at=[7, 8])
    assert run.results == [({"c": 0}, 7), ({"c": 5}, 8)]


def test_map_batches_that_loses_event_times_is_told_how_to_keep_them() -> None:
    first = MapBatchesOperator(lambda batch: batch.slice(0, 1).select(["f"]))
    with pytest.raises(UserFunctionError, match=TIMESTAMP_COLUMN):
        OperatorRun(first).push({"f": 32}, {"f": 42}, at=[7, 8])


def test_records_without_a_common_shape_cannot_become_columns() -> None:
    with pytest.raises(RecordFormatError, match="cannot become columns"):
        OperatorRun(MapBatchesOperator(lambda b: b)).push((1, 2), (1,))


def test_operators_travel_to_the_task_by_pickle() -> None:
    for operator in (
        MapOperator(CountPerKey()),
        FilterOperator(HOT),
        FlatMapOperator(OwnParity()),
        ProjectOperator([0]),
    ):
        pickle.loads(pickle.dumps(operator))
