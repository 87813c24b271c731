"""Rolling aggregates of fields, on rows and on columns."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.datastream.window import FieldAggregate
from penstock.records.batch import ColumnBatch, RowBatch
from penstock.records.columns import rows_as_dicts
from penstock.state.hashmap import accumulator_table
from penstock.taskmanager.operators.aggregate.rolling import RollingFieldsOperator
from penstock.taskmanager.operators.aggregate.stat_columns import StatShape
from penstock.testing.operator_run import OperatorRun

F = FieldAggregate
COUNT_AND_MAX = F.of(F.count(), F.max("t"))
READINGS = [("a", 5), ("b", 1), ("a", 3), ("a", 9), ("b", 2)]
RUNNING = [("a", 1, 5), ("b", 1, 1), ("a", 2, 5), ("a", 3, 9), ("b", 2, 2)]
SCHEMA = pa.schema([("id", pa.string()), ("t", pa.int64()), ("u", pa.float64())])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """State becomes columns as soon as columns arrive, and again after it was objects."""
    monkeypatch.setattr(accumulator_table, "_FEW", 1)
    monkeypatch.setattr(accumulator_table, "_PATIENCE", 0)


def records(readings: list[Any]) -> list[dict[str, Any]]:
    return [{"id": key, "t": t, "u": None} for key, t in readings]


def columns(values: list[dict[str, Any]], timestamps: list[int] | None = None) -> ColumnBatch:
    stamps = None if timestamps is None else np.array(timestamps)
    return ColumnBatch(pa.RecordBatch.from_pylist(values, schema=SCHEMA), stamps, rows_as_dicts)


def rolling(aggregate: FieldAggregate = COUNT_AND_MAX) -> RollingFieldsOperator:
    return RollingFieldsOperator(aggregate, itemgetter("id"))


def test_every_record_emits_the_aggregates_of_its_key_so_far() -> None:
    run = OperatorRun(rolling()).push(*records(READINGS), at=[1, 2, 3, 4, 5])
    assert run.results == list(zip(RUNNING, [1, 2, 3, 4, 5], strict=True))


def test_columns_remain_columns_and_keep_their_order() -> None:
    run = OperatorRun(rolling()).push_batch(columns(records(READINGS), [1, 2, 3, 4, 5]))
    (batch,) = run.output.batches
    assert isinstance(batch, ColumnBatch)
    assert batch.columns.schema.names == ["key", "count", "max_t"]
    assert run.results == list(zip(RUNNING, [1, 2, 3, 4, 5], strict=True))


@pytest.mark.parametrize(
    "batches",
    [
        [[2**62, 2**62, 2**62]],
        [[2**62 - 1], [2**62 - 1], [2**62 - 1], [1, -5]],
        [[2**61] * 2, [2**61] * 2, [2**61] * 2, [7], [-(2**63)]],
        [[-(2**63)], [2**63 - 1], [-1]],
    ],
)
def test_sums_beyond_64_bits_are_as_exact_in_columns_as_in_rows(batches: list[list[int]]) -> None:
    """Such sums occur with times in nanoseconds."""
    aggregate = F.of(F.sum("t"), F.mean("t"), F.min("t"), F.max("t"))
    by_columns, by_rows = OperatorRun(rolling(aggregate)), OperatorRun(rolling(aggregate))
    for numbers in batches:
        readings = records([("a", number) for number in numbers])
        by_columns.push_batch(columns(readings))
        by_rows.push(*readings)
    assert by_columns.values == by_rows.values
    assert by_columns.values[-1][1] == sum(map(sum, batches))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_accumulators_are_state(backend: str) -> None:
    run = OperatorRun(rolling(), backend=backend).push_batch(columns(records(READINGS[:2])))
    again = run.restart().push(*records(READINGS[2:4]))
    assert again.restart().push_batch(columns(records(READINGS[4:]))).values == RUNNING[4:]
    assert again.values == RUNNING[2:4]


def test_an_argument_that_is_not_a_field_aggregate_is_refused() -> None:
    with pytest.raises(InvalidJob, match="FieldAggregate"):
        RollingFieldsOperator(max, itemgetter("id"))  # type: ignore[arg-type]


def test_an_unusable_value_is_named_with_its_record() -> None:
    with pytest.raises(UserFunctionError, match=r"record 1 of a batch of 2: \{'id': 'a', 't': 'x', 'u': None\}"):
        OperatorRun(rolling()).push(*records([("a", 1), ("a", "x")]))


def test_keys_that_are_neither_text_nor_integers_are_aggregated() -> None:
    schema = pa.schema([("id", pa.float64()), ("t", pa.int64())])
    run = OperatorRun(rolling())
    for part in (READINGS[:3], READINGS[3:]):
        values = [{"id": {"a": 0.5, "b": float("inf")}[key], "t": t} for key, t in part]
        run.push_batch(ColumnBatch(pa.RecordBatch.from_pylist(values, schema=schema), None, rows_as_dicts))
    assert [count for _, count, _ in run.values] == [count for _, count, _ in RUNNING]


def test_a_key_that_a_dictionary_contains_twice_is_one_key() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "a"]))
    run = OperatorRun(rolling())
    batch = pa.RecordBatch.from_arrays([keys, pa.array([1, 5, 2])], ["id", "t"])
    run.push_batch(ColumnBatch(batch, None, rows_as_dicts)).push_batch(ColumnBatch(batch, None, rows_as_dicts))
    assert run.values == [("a", 1, 1), ("a", 2, 5), ("a", 3, 5), ("a", 4, 5), ("a", 5, 5), ("a", 6, 5)]


def test_numbers_of_another_type_continue_from_the_previous_ones() -> None:
    floats = pa.schema([("id", pa.string()), ("t", pa.float64())])
    by_columns, by_rows = (
        OperatorRun(rolling(F.of(F.sum("t"), F.min("t")))),
        OperatorRun(rolling(F.of(F.sum("t"), F.min("t")))),
    )
    for numbers, schema in (([3, 4], SCHEMA), ([0.5, 2.5], floats), ([2**53 + 1, 1], SCHEMA), ([-1.5], floats)):
        values = [{"id": "a", "t": number} for number in numbers]
        by_columns.push_batch(ColumnBatch(pa.RecordBatch.from_pylist(values, schema=schema), None, rows_as_dicts))
        by_rows.push(*values)
    assert by_columns.values == by_rows.values


def test_a_sum_at_the_lowest_integer_of_64_bits_does_not_wrap() -> None:
    run = OperatorRun(rolling(F.sum("t")))
    for number in [-(2**61)] * 4 + [-5]:
        run.push_batch(columns(records([("a", number)])))
    assert run.values[-1] == ("a", -(2**63) - 5)


@pytest.mark.parametrize(
    ("aggregate", "numbers"),
    [(F.sum("t"), [1, None, 4]), (F.of(F.min("t"), F.max("t")), [2.5, None, -1.0]), (F.count("t"), [None, 3])],
)
def test_accumulators_return_unchanged_from_columns(aggregate: FieldAggregate, numbers: list[Any]) -> None:
    column = pa.array(numbers)
    accumulators = [aggregate.create_accumulator()]
    for number in numbers:
        accumulators.append(aggregate.add({"t": number}, accumulators[-1]))
    shape = StatShape.of(aggregate, [column])
    columns = shape.columns(accumulators)
    assert columns is not None
    assert repr(shape.accumulators(columns)) == repr(accumulators)
    assert repr(shape.accumulators([np.array([fresh]) for fresh in shape.fresh])) == repr(accumulators[:1])


@pytest.mark.parametrize(
    "accumulator",
    [
        (1, 1, 2**63, None, 5),
        (1, 1, 0.5, None, 5),
        (1, 1, 5, None, None),
        (1, True, 5, None, 5),
        (1, 1, 5, None, 5.0),
        (2**63, 1, 5, None, 5),
        ((1, 1, 5, None, 5), (1, 1, 5, None, 5)),
        (1,),
        7,
    ],
)
def test_accumulators_that_would_change_do_not_become_columns(accumulator: Any) -> None:
    shape = StatShape.of(F.of(F.sum("t"), F.max("t")), [pa.array([1])])
    assert shape.columns([(1, 1, 5, None, 5)]) is not None
    assert shape.columns([(1, 1, 5, None, 5), accumulator]) is None


FLOATS = pa.schema([("id", pa.string()), ("u", pa.float64())])


def float_columns(values: Sequence[tuple[str, float | None]]) -> ColumnBatch:
    rows = [{"id": key, "u": number} for key, number in values]
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=FLOATS), None, rows_as_dicts)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e17, 1e308])
def test_a_value_of_one_key_does_not_change_the_sums_of_others(poison: float) -> None:
    numbers = [(f"account-{n % 50}", n / 8) for n in range(500)]
    run = OperatorRun(rolling(F.sum("u")))
    run.push_batch(float_columns([("account-0", poison), *numbers])).push_batch(float_columns(numbers))
    totals = dict(run.values)
    assert all(totals[f"account-{key}"] == 2 * sum(n / 8 for n in range(key, 500, 50)) for key in range(1, 50))


def test_float_sums_equal_those_of_rows_for_any_ends_of_batches() -> None:
    numbers = [("ab"[n % 2], (0.1, 1e16, -1e16, 0.7)[n % 4] * n) for n in range(200)]
    by_rows = OperatorRun(rolling(F.of(F.sum("u"), F.mean("u")))).push_batch(float_columns(numbers).rows())
    for size in (1, 7, 200):
        run = OperatorRun(rolling(F.of(F.sum("u"), F.mean("u"))))
        for begin in range(0, 200, size):
            run.push_batch(float_columns(numbers[begin : begin + size]))
        assert run.values == by_rows.values


def test_a_mean_of_large_integers_is_rounded_once() -> None:
    numbers = [2**53 + 1, 2**53 + 3, 1]
    by_columns = OperatorRun(rolling(F.mean("t"))).push_batch(columns(records([("a", n) for n in numbers])))
    assert by_columns.values == [("a", sum(numbers[:n]) / n) for n in (1, 2, 3)]


def test_keys_that_are_equal_are_one_key_in_columns() -> None:
    schema = pa.schema([("id", pa.float64()), ("t", pa.int64())])
    rows = [{"id": key, "t": 1} for key in (0.0, -0.0, 0.0)]
    run = OperatorRun(rolling(F.sum("t")))
    for _ in range(2):
        run.push_batch(ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=schema), None, rows_as_dicts))
    assert [total for _, total in run.values] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("forms", ["cr", "rc", "crc"])
def test_integers_and_floats_keep_their_types_when_a_field_has_both(forms: str) -> None:
    """One file has integers, and a later one has floats."""
    aggregate = F.of(F.sum("t"), F.min("t"), F.max("t"))
    mixed, by_rows = OperatorRun(rolling(aggregate)), OperatorRun(rolling(aggregate))
    batches: list[tuple[Any, list[Any]]] = [(pa.int64(), [3, 4]), (pa.float64(), [3.0, 9.5]), (pa.int64(), [None, 3])]
    for form, (kind, numbers) in zip(forms, batches, strict=False):
        schema = pa.schema([("id", pa.string()), ("t", kind)])
        rows = [{"id": "a", "t": number} for number in numbers]
        batch = ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=schema), None, rows_as_dicts)
        mixed.push_batch(batch if form == "c" else batch.rows())
        by_rows.push(*rows)
    assert repr(mixed.values) == repr(by_rows.values)


ALL = F.of(F.count(), F.count("t"), F.sum("t"), F.mean("t"), F.min("t"), F.max("t"), F.min("u"), F.max("u"), F.sum("u"))
record = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc") | st.sampled_from(["a longer key", "\0", "x" * 70]),
        "t": st.none() | st.integers(-1000, 1000),
        "u": st.none() | st.integers(-100, 100).map(lambda n: n / 4),
    }
)


@pytest.mark.parametrize("aggregate", [ALL, COUNT_AND_MAX])
@given(
    history=st.lists(st.lists(record, min_size=1, max_size=25), max_size=4),
    form=st.integers(0, 15),
    restarts=st.integers(0, 15),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_and_rows_have_equal_results(
    aggregate: FieldAggregate, history: list[Any], form: int, restarts: int
) -> None:
    by_rows, mixed = OperatorRun(rolling(aggregate)), OperatorRun(rolling(aggregate))
    values = []
    for number, part in enumerate(history):
        by_rows.push_batch(RowBatch(part))
        mixed.push_batch(columns(part) if form >> number & 1 else RowBatch(part))
        values += mixed.take()
        if restarts >> number & 1:
            mixed = mixed.restart()
    assert values == by_rows.values
