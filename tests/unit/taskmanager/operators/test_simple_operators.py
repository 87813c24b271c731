"""map, flat_map, filter, project and functions on Arrow batches."""

from __future__ import annotations

import math
import pickle
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError, UserFunctionError
from penstock.common.types import Row, RowKind
from penstock.datastream.functions import FilterFunction, FlatMapFunction, MapFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.records.batch import ColumnBatch, RowBatch
from penstock.records.columns import rows_as_dicts, rows_as_tuples
from penstock.taskmanager.operators.select import SelectOperator
from penstock.taskmanager.operators.simple import (
    TIMESTAMP_COLUMN,
    FilterOperator,
    FlatMapOperator,
    MapBatchesOperator,
    MapOperator,
    ProjectOperator,
)
from penstock.testing.operator_run import OperatorRun
from tests.value_difference import difference


def columns(timestamps: list[int] | None = None, **fields: Any) -> ColumnBatch:
    batch = pa.RecordBatch.from_pydict(fields)
    return ColumnBatch(batch, None if timestamps is None else np.array(timestamps), rows_as_dicts)


def test_map_increments_every_record_and_keeps_timestamps() -> None:
    run = OperatorRun(MapOperator(lambda v: v + 1)).push(1, 2, 3, 4, at=[10, 20, 30, 40])
    assert run.results == [(2, 10), (3, 20), (4, 30), (5, 40)]


def test_map_projects_the_id() -> None:
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
    """The filter accepts tuples, objects and Rows."""
    assert [person[0] for person in OperatorRun(FilterOperator(adult)).push(*people).values] == expected


def test_filter_keeps_the_boundary_and_the_timestamps_of_kept_records() -> None:
    run = OperatorRun(FilterOperator(lambda t: t >= 25)).push(24.9, 25.0, 30.0, at=[1, 2, 3])
    assert run.results == [(25.0, 2), (30.0, 3)]


def test_filter_that_drops_all_emits_nothing() -> None:
    run = OperatorRun(FilterOperator(lambda v: False)).push(1, 2)
    assert run.output.batches == []


def test_filter_that_keeps_all_forwards_a_columnar_batch_unchanged() -> None:
    batch = columns(t=[1, 2])
    assert OperatorRun(FilterOperator(lambda r: True)).push_batch(batch).output.batches == [batch]


def test_flat_map_splits_the_id() -> None:
    run = OperatorRun(FlatMapOperator(lambda s: s.split("_"))).push("sensor_7", at=5)
    assert run.results == [("sensor", 5), ("7", 5)]


def test_flat_map_passes_doubles_and_drops_colours() -> None:
    """A generator, a list and None are valid results."""

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
def test_keyword_filter_works_as_function_and_as_object(keep: Any) -> None:
    assert OperatorRun(FilterOperator(keep)).push(*TWEETS).values == ["I love flink", "flinky"]


def test_keyword_filter_reads_a_global_job_parameter() -> None:
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


def convert(value: Any) -> Any:
    return pa.array([1, value], pa.int64())  # the line of convert


def test_an_error_in_a_compiled_library_names_the_line_of_the_program() -> None:
    """The innermost frames are Cython's, and their files have no directory: `pyarrow/error.pxi`."""
    number = next(
        n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the line of conv" in line
    )
    with pytest.raises(UserFunctionError, match=rf"\(at {re.escape(__file__)}:{number} in convert\)"):
        OperatorRun(MapOperator(convert)).push("x")


def test_an_error_in_map_batches_names_the_function_and_the_line_of_the_program() -> None:
    def enrich(batch: pa.RecordBatch) -> Any:
        return batch.append_column("kelvin", convert("x"))

    with pytest.raises(
        UserFunctionError, match=r"enrich on a batch of 1 records .*columns f raised .* in convert\)"
    ) as caught:
        OperatorRun(MapBatchesOperator(enrich)).push({"f": 32})
    assert " at 0x" not in str(caught.value)


def test_error_message_cuts_long_records() -> None:
    with pytest.raises(UserFunctionError) as caught:
        OperatorRun(MapOperator(int)).push("x" * 10_000)
    assert len(str(caught.value)) < 1500
    assert "10002 characters" in str(caught.value)


@pytest.mark.parametrize("operator", [FilterOperator(lambda v: v["x"]), FlatMapOperator(lambda v: v["x"])])
def test_an_error_names_the_position_of_its_record_in_every_operator(operator: Any) -> None:
    with pytest.raises(UserFunctionError, match="record 1 of a batch of 3: 5"):
        OperatorRun(operator).push({"x": [1]}, 5, {"x": [2]}, at=[1, 2, 3])


def test_an_error_in_a_generator_names_its_record() -> None:
    def fails_late(value: int) -> Any:
        yield value
        if value == 7:
            raise RuntimeError("late")

    with pytest.raises(UserFunctionError, match="record 1 of a batch of 2: 7 raised RuntimeError: late"):
        OperatorRun(FlatMapOperator(fails_late)).push(6, 7)


def test_an_argument_that_is_not_a_function_is_refused_immediately() -> None:
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
def test_project_keeps_the_named_fields(record: Any, indexes: tuple[int, ...], expected: Any) -> None:
    assert OperatorRun(ProjectOperator(indexes)).push(record, at=3).results == [(expected, 3)]


def test_project_keeps_the_kind_of_a_row() -> None:
    row = Row.of_kind(RowKind.DELETE, a=1, b=2)
    assert OperatorRun(ProjectOperator([1])).push(row).values == [Row.of_kind(RowKind.DELETE, b=2)]


def test_project_of_columns_returns_columns() -> None:
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


def test_map_batches_gets_event_times_and_may_drop_records() -> None:
    def hot(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["t", TIMESTAMP_COLUMN]
        return batch.filter(pc.field("t") > 25)

    run = OperatorRun(MapBatchesOperator(hot)).push_batch(columns([1, 2, 3], t=[20, 30, 40]))
    assert run.results == [({"t": 30}, 2), ({"t": 40}, 3)]


def test_map_batches_keeps_the_times_if_the_number_of_records_is_the_same() -> None:
    def celsius(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"c": pc.divide(pc.subtract(batch["f"], 32), 2)})

    run = OperatorRun(MapBatchesOperator(celsius)).push({"f": 32}, {"f": 42}, at=[7, 8])
    assert run.results == [({"c": 0}, 7), ({"c": 5}, 8)]


MIXED = [
    *(None, 1, 2.5, 3.0, "a", True, b"x", Decimal("1.5"), date(2024, 1, 1), datetime(2024, 1, 1)),
    *(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")), datetime(2024, 1, 1, tzinfo=UTC)),
    *(
        datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    ),
]


@given(
    st.lists(st.tuples(st.sampled_from(MIXED), st.sampled_from([None, 1, 0.5])), min_size=1, max_size=12),
    st.sets(st.integers(1, 11)),
    st.booleans(),
)
def test_map_batches_has_the_same_types_for_any_ends_of_batches(
    fields: list[tuple[Any, Any]], cuts: set[int], has_times: bool
) -> None:
    def with_types(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records and the type of the column for each value that is not None."""
        types = [None if value is None else str(batch.schema.field("a").type) for value in batch["a"].to_pylist()]
        return batch.append_column("type", pa.array(types, pa.string()))

    records = [{"a": a, "b": b} for a, b in fields]
    times = list(range(len(records))) if has_times else None

    def run(ends: list[int]) -> Any:
        mapped = OperatorRun(MapBatchesOperator(with_types))
        for begin, end in zip([0, *ends], ends, strict=False):
            mapped.push_batch(RowBatch(records[begin:end], None if times is None else times[begin:end]))
        return mapped.results

    size = len(records)
    got = run([*sorted(cut for cut in cuts if cut < size), size])
    assert difference(run([size]), got) is None
    utc = [{**record, "a": in_utc(record["a"])} for record in records]
    assert difference(utc, [{"a": value["a"], "b": value["b"]} for value, _ in got]) is None


def in_utc(value: Any) -> Any:
    """Convert UTC times with any class of time zone to `datetime.UTC`, as columns return them."""
    is_utc = isinstance(value, datetime) and str(value.tzinfo) == "UTC"
    return value.replace(tzinfo=UTC) if is_utc else value


@pytest.mark.parametrize("fill", [0.5, 1.0])
@pytest.mark.parametrize("odd", [7, None, True, math.nan, math.inf, 2**53])
def test_a_large_batch_of_floats_with_one_other_value_is_converted_correctly(fill: float, odd: Any) -> None:
    records: list[Any] = [{"a": fill} for _ in range(1500)]
    records[700] = {"a": odd}
    run = OperatorRun(MapBatchesOperator(lambda batch: batch)).push_batch(RowBatch(records, None))
    assert difference(records, run.values) is None


def test_a_column_of_none_has_the_type_of_the_previous_batch() -> None:
    seen: list[pa.DataType] = []

    def see(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.schema.field("a").type)
        return batch

    run = OperatorRun(MapBatchesOperator(see))
    for value in (1, None, 2.5, None):
        run.push({"a": value})
    assert seen == [pa.int64(), pa.int64(), pa.float64(), pa.float64()]


def test_map_batches_that_drops_event_times_is_refused_with_a_remedy() -> None:
    first = MapBatchesOperator(lambda batch: batch.slice(0, 1).select(["f"]))
    with pytest.raises(UserFunctionError, match=TIMESTAMP_COLUMN):
        OperatorRun(first).push({"f": 32}, {"f": 42}, at=[7, 8])


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2, 3]])
@pytest.mark.parametrize(
    ("numbers", "results"),
    [
        ([1, 2.5, 3, None], [0, 1.25, 1, 0]),
        ([1.0, None, 3, 4], [0.5, 0.0, 1, 2]),
        ([2**53 + 1, 0.5, 1, 2], [2**52, 0.25, 0, 1]),
        ([None, 3, None, 2.5], [0, 1, 0, 1.25]),
    ],
)
def test_the_ends_of_batches_do_not_change_the_results_of_expressions(
    numbers: list[Any], results: list[Any], cuts: list[int]
) -> None:
    """Arrow divides integers without a remainder. A column of integers and floats would have the type float."""
    half = (("half", pc.coalesce(pc.field("t") / 2, pc.scalar(0))),)
    selected, kept = OperatorRun(SelectOperator(half, keeps=False)), OperatorRun(FilterOperator(pc.field("t") / 2 < 1))
    for begin, end in zip([0, *cuts], [*cuts, 4], strict=True):
        rows = [{"t": number} for number in numbers[begin:end]]
        selected.push(*rows, at=begin)
        kept.push(*rows)
    assert repr(selected.values) == repr([{"half": result} for result in results])
    below = [number for number, result in zip(numbers, results, strict=True) if number is not None and result < 1]
    assert repr(kept.values) == repr([{"t": number} for number in below])


def test_a_batch_of_none_has_the_previous_type_of_the_field() -> None:
    run = OperatorRun(SelectOperator((("t", pc.utf8_upper(pc.field("t"))),), keeps=False))
    assert run.push({"t": "a"}).push({"t": None}).push({"t": "b"}).values == [{"t": "A"}, {"t": None}, {"t": "B"}]


def test_integers_beyond_64_bits_cannot_become_columns() -> None:
    run = OperatorRun(FilterOperator(pc.field("t") > 0))
    with pytest.raises(RecordFormatError, match="too large"):
        run.push({"t": 2**70})


def test_event_times_from_map_batches_are_converted_or_refused() -> None:
    def stamped(times: pa.Array) -> OperatorRun:
        made = pa.RecordBatch.from_arrays([pa.array(["a"]), times], ["id", TIMESTAMP_COLUMN])
        return OperatorRun(MapBatchesOperator(lambda batch: made)).push_batch(columns([1], id=["a"]))

    assert stamped(pa.array([-500], pa.timestamp("us"))).results == [({"id": "a"}, -1)]
    assert stamped(pa.array([7], pa.int32())).results == [({"id": "a"}, 7)]
    with pytest.raises(RecordFormatError, match="is null in the record"):
        stamped(pa.array([None], pa.int64()))


@pytest.mark.parametrize("as_columns", [True, False])
def test_project_keeps_fields_of_dicts(as_columns: bool) -> None:
    batch = columns(a=[1, 2], b=["x", "y"], c=[None, 0.5])
    run = OperatorRun(ProjectOperator((2, 0))).push_batch(batch if as_columns else batch.rows())
    assert run.values == [{"c": None, "a": 1}, {"c": 0.5, "a": 2}]


def test_records_without_a_common_shape_cannot_become_columns() -> None:
    with pytest.raises(RecordFormatError, match="cannot be converted to columns"):
        OperatorRun(MapBatchesOperator(lambda b: b)).push((1, 2), (1,))


def test_operators_can_be_pickled() -> None:
    for operator in (
        MapOperator(CountPerKey()),
        FilterOperator(HOT),
        FlatMapOperator(OwnParity()),
        ProjectOperator([0]),
    ):
        pickle.loads(pickle.dumps(operator))
