"""Built-in window aggregates on fields, on rows and on columns."""

from __future__ import annotations

import pickle
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import (
    EventTimeTrigger,
    FieldAggregate,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.records.batch import ColumnBatch, RowBatch
from penstock.records.columns import rows_as_dicts
from penstock.taskmanager.operators.window.operator import LATE_RECORDS_METRIC, WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.window_function import WindowFunctionSpec

F = FieldAggregate
ALL = F.of(F.mean("t"), F.sum("t"), F.min("t"), F.max("t"), F.count("t"), F.count(), F.max("u"))


def with_key(key: Any, context: Any, elements: Any) -> Any:
    yield key, context.window().start, *elements


def operator(aggregate: FieldAggregate = ALL, assigner: Any = None, **options: Any) -> WindowOperator:
    spec = WindowFunctionSpec.aggregate(aggregate, with_key)
    return WindowOperator(assigner or TumblingEventTimeWindows.of(10), spec, itemgetter("id"), **options)


def columns(records: list[dict[str, Any]], timestamps: list[int]) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pylist(records), np.array(timestamps, np.int64), rows_as_dicts)


RECORDS: list[dict[str, Any]] = [
    {"id": "a", "t": 1, "u": 0.5},
    {"id": "b", "t": 5, "u": 1.5},
    {"id": "a", "t": None, "u": 2.5},
    {"id": "a", "t": 3, "u": None},
    {"id": "a", "t": 7, "u": -1.0},
]
TIMES = [0, 3, 5, 9, 10]
RESULTS = [
    ("a", 0, (2.0, 4, 1, 3, 2, 3, 2.5)),
    ("b", 0, (5.0, 5, 5, 5, 1, 1, 1.5)),
    ("a", 10, (7.0, 7, 7, 7, 1, 1, -1.0)),
]


@pytest.mark.parametrize("grouping", ["auto", "never"])
def test_several_aggregates_in_one_pass_over_rows(grouping: str) -> None:
    run = OperatorRun(operator(grouping=grouping)).push_batch(RowBatch(RECORDS, TIMES)).end()
    assert run.values == RESULTS


def test_columns_are_aggregated_without_creating_records() -> None:
    def never(batch: Any) -> list[Any]:
        raise AssertionError("records were created")

    batch = ColumnBatch(pa.RecordBatch.from_pylist(RECORDS), np.array(TIMES), never)
    assert OperatorRun(operator()).push_batch(batch).end().values == RESULTS


@pytest.mark.parametrize("numbers", [[2**62] * 4, [-(2**63)], [2**63 - 1, 1], [-(2**63), 2**63 - 1]])
def test_sums_beyond_64_bits_are_as_exact_in_columns_as_in_rows(numbers: list[int]) -> None:
    aggregate = F.of(F.sum("t"), F.mean("t"), F.min("t"), F.max("t"))
    records, times = [{"id": "a", "t": number} for number in numbers], [0] * len(numbers)
    by_columns = OperatorRun(operator(aggregate)).push_batch(columns(records, times)).end().values
    assert by_columns == OperatorRun(operator(aggregate)).push(*records, at=times).end().values
    assert by_columns[0][2][0] == sum(numbers)


def test_accumulators_continue_from_batch_to_batch_in_either_form() -> None:
    run = OperatorRun(operator())
    run.push_batch(columns(RECORDS[:2], TIMES[:2])).push_batch(RowBatch(RECORDS[2:3], TIMES[2:3]))
    assert run.push_batch(columns(RECORDS[3:], TIMES[3:])).end().values == RESULTS


def test_dictionary_encoded_keys_are_used_directly() -> None:
    batch = pa.RecordBatch.from_pylist(RECORDS)
    encoded = batch.set_column(0, "id", batch.column(0).dictionary_encode())
    run = OperatorRun(operator()).push_batch(ColumnBatch(encoded, np.array(TIMES), rows_as_dicts)).end()
    assert run.values == RESULTS


UNUSUAL = {
    "a key is null": {"id": [None, "b"], "t": [1, 2], "u": [1.0, 2.0]},
    "unsigned beyond int64": {"id": ["a", "a"], "t": [1, 2], "u": pa.array([1, 2**64 - 1], pa.uint64())},
    "decimals": {"id": ["a", "a"], "t": [1, 2], "u": [Decimal("1.5"), Decimal("2.5")]},
}


@pytest.mark.parametrize("fields", UNUSUAL.values(), ids=UNUSUAL)
def test_columns_that_are_not_plain_numbers_are_processed_as_records(fields: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_pydict(fields)
    by_columns = OperatorRun(operator()).push_batch(ColumnBatch(batch, np.array([1, 2]), rows_as_dicts)).end()
    by_rows = OperatorRun(operator()).push_batch(RowBatch(batch.to_pylist(), [1, 2])).end()
    assert by_columns.values == by_rows.values
    assert len(by_rows.values) == len(set(fields["id"]))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RecordFormatError, match="no field 'u' in the record"):
        OperatorRun(operator()).push_batch(columns([{"id": "a", "t": 1}], [1]))


def test_late_records_of_columns_go_to_the_late_output() -> None:
    run = OperatorRun(operator(late_tag=OutputTag("late"))).watermark(9)
    run.push_batch(columns(RECORDS, TIMES)).end()
    assert run.values == RESULTS[2:]
    assert [timestamp for _, timestamp in run.output.sides["late"]] == [0, 3, 5, 9]
    dropped = OperatorRun(operator()).watermark(9).push_batch(columns(RECORDS, TIMES))
    assert dropped.metrics.counters[LATE_RECORDS_METRIC].count == 4


def test_allowed_late_records_of_columns_fire_one_by_one() -> None:
    run = OperatorRun(operator(F.count(), allowed_lateness=100)).watermark(9).push_batch(columns(RECORDS, TIMES))
    assert run.take() == [("a", 0, 1), ("b", 0, 1), ("a", 0, 2), ("a", 0, 3)]
    assert run.end().values == [("a", 10, 1)]


def test_processing_time_windows_accept_columns_without_timestamps() -> None:
    run = OperatorRun(operator(F.sum("t"), TumblingProcessingTimeWindows.of(10))).at_time(25)
    batch = ColumnBatch(pa.RecordBatch.from_pylist(RECORDS), None, rows_as_dicts)
    assert run.push_batch(batch).at_time(29).values == [("a", 20, 11), ("b", 20, 5)]


def test_columns_in_the_global_window_give_final_results() -> None:
    spec = WindowFunctionSpec.aggregate(F.of(F.sum("t"), F.count()), lambda key, ctx, results: [(key, *results[0])])
    final = WindowOperator(GlobalWindows.create(), spec, itemgetter("id"), trigger=EventTimeTrigger.create())
    run = OperatorRun(final).push_batch(columns(RECORDS, TIMES)).push(*RECORDS[:2]).end()
    assert run.values == [("a", 12, 5), ("b", 10, 2)]


def test_results_of_one_aggregate_are_plain_values() -> None:
    spec = WindowFunctionSpec.aggregate(F.mean(1))
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, itemgetter(0)))
    assert run.push(("a", 1), ("a", 2), at=1).end().results == [(1.5, 9)]


@pytest.mark.parametrize("record", [("a", 4), Row("a", 4), Row(id="a", t=4), ["a", 4]])
def test_fields_are_selected_by_position(record: Any) -> None:
    spec = WindowFunctionSpec.aggregate(F.max(1))
    run = OperatorRun(WindowOperator(TumblingEventTimeWindows.of(10), spec, itemgetter(0)))
    assert run.push(record, at=1).end().values == [4]


def test_aggregates_without_values_have_defined_results() -> None:
    aggregate = F.of(F.mean("t"), F.sum("t"), F.min("t"), F.max("t"), F.count("t"))
    run = OperatorRun(operator(aggregate)).push({"id": "a", "t": None}, at=1).end()
    assert run.values == [("a", 0, (None, None, None, None, 0))]
    by_columns = pa.RecordBatch.from_pydict({"id": ["a"], "t": pa.array([None], pa.float64())})
    again = OperatorRun(operator(aggregate)).push_batch(ColumnBatch(by_columns, np.array([1]), rows_as_dicts)).end()
    assert again.values == run.values


def test_an_aggregate_without_parts_is_refused_and_the_others_can_be_pickled() -> None:
    with pytest.raises(InvalidJob):
        F([])
    assert pickle.loads(pickle.dumps(ALL)).parts == ALL.parts


NAN, EXTREMES = float("nan"), F.of(F.min("u"), F.max("u"))


@pytest.mark.parametrize("cut", [0, 1, 2])
@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(
    ("numbers", "extremes"),
    [
        ([1.0, NAN, 0.5], (0.5, NAN)),
        ([NAN, 1.0, 0.5], (0.5, NAN)),
        ([0.5, 1.0, NAN], (0.5, NAN)),
        ([NAN, NAN, NAN], (NAN, NAN)),
        ([NAN, None, None], (NAN, NAN)),
        ([0.0, -0.0, 0.0], (-0.0, 0.0)),
        ([-0.0, None, 0.0], (-0.0, 0.0)),
        ([float("-inf"), float("inf"), None], (float("-inf"), float("inf"))),
    ],
)
def test_nan_is_above_all_numbers_and_minus_zero_below_zero(
    numbers: list[Any], extremes: Any, form: str, cut: int
) -> None:
    schema = pa.schema([("id", pa.string()), ("u", pa.float64())])
    run = OperatorRun(operator(EXTREMES))
    for part in (numbers[:cut], numbers[cut:]):
        if part:
            rows = [{"id": "a", "u": number} for number in part]
            batch = ColumnBatch(
                pa.RecordBatch.from_pylist(rows, schema=schema), np.zeros(len(part), int), rows_as_dicts
            )
            run.push_batch(batch if form == "columns" else batch.rows())
    assert repr(run.end().values) == repr([("a", 0, extremes)])


@pytest.mark.parametrize(
    ("values", "results"),
    [
        ([np.int8(100), np.int8(100)], (200, 100.0, 100, 100)),
        ([np.int64(2**62)] * 4, (2**64, float(2**62), 2**62, 2**62)),
        (
            [np.float32(0.1), 0.1],
            (float(np.float32(0.1)) + 0.1, (float(np.float32(0.1)) + 0.1) / 2, 0.1, float(np.float32(0.1))),
        ),
        ([True, True], (2, 1.0, True, True)),
        ([np.bool_(True), 3], (4, 2.0, True, 3)),
        ([Decimal("1.10"), Decimal("2.30")], (Decimal("3.40"), Decimal("1.70"), Decimal("1.10"), Decimal("2.30"))),
        ([2**70, -(2**70), 1], (1, 1 / 3, -(2**70), 2**70)),
        ([1, 1.0], (2.0, 1.0, 1, 1)),
        ([-0.0], (0.0, 0.0, -0.0, -0.0)),
        ([float("inf"), float("-inf")], (NAN, NAN, float("-inf"), float("inf"))),
    ],
)
def test_values_of_every_kind_have_the_same_result_in_rows_and_columns(values: list[Any], results: Any) -> None:
    aggregate = F.of(F.sum("t"), F.mean("t"), F.min("t"), F.max("t"))
    run = OperatorRun(operator(aggregate)).push(*({"id": "a", "t": value} for value in values), at=1)
    accumulator = aggregate.create_accumulator()
    for value in values:
        accumulator = aggregate.add({"t": value}, accumulator)
    assert repr(aggregate.get_result(accumulator)) == repr(results)
    assert repr(run.restart().end().values) == repr([("a", 0, results)])


def test_a_decimal_nan_is_above_all_numbers() -> None:
    values = [Decimal(1), Decimal("NaN"), Decimal("0.5")]
    run = OperatorRun(operator(EXTREMES)).push(*({"id": "a", "u": value} for value in values), at=1)
    assert repr(run.end().values) == "[('a', 0, (Decimal('0.5'), Decimal('NaN')))]"


record = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "t": st.none() | st.integers(-1000, 1000),
        "u": st.none() | st.integers(-100, 100).map(lambda n: n / 4),
    }
)


@given(
    records=st.lists(st.tuples(record, st.integers(0, 60)), min_size=1, max_size=30),
    cut=st.integers(0, 30),
    watermark=st.integers(0, 60),
    lateness=st.sampled_from([0, 15]),
    assigner=st.sampled_from([TumblingEventTimeWindows.of(10, 3), SlidingEventTimeWindows.of(10, 4)]),
)
def test_columns_and_rows_have_equal_results(
    records: list[Any], cut: int, watermark: int, lateness: int, assigner: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("t", pa.int64()), ("u", pa.float64())])
    outcomes = []
    for as_columns in (True, False):
        run = OperatorRun(operator(assigner=assigner, allowed_lateness=lateness, late_tag=OutputTag("late")))
        for part in (records[:cut], records[cut:]):
            if part:
                values, times = [r for r, _ in part], [t for _, t in part]
                batch = pa.RecordBatch.from_pylist(values, schema=schema)
                rows = RowBatch(values, times)
                run.push_batch(ColumnBatch(batch, np.array(times), rows_as_dicts) if as_columns else rows)
            run.watermark(watermark)
        late = sorted(repr([r[name] for name in ("id", "t", "u")]) for r in run.side("late"))
        outcomes.append((sorted(run.end().values, key=repr), late))
    assert outcomes[0] == outcomes[1]
