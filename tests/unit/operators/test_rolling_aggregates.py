"""Rolling aggregates of fields, on rows and on columns."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.datastream.window import FieldAggregate
from penstock.taskmanager.batch import ColumnBatch, RowBatch
from penstock.taskmanager.operators.columns import rows_as_dicts
from penstock.taskmanager.operators.rolling import RollingFieldsOperator
from penstock.testing.operator_run import OperatorRun

F = FieldAggregate
COUNT_AND_MAX = F.of(F.count(), F.max("t"))
READINGS = [("a", 5), ("b", 1), ("a", 3), ("a", 9), ("b", 2)]
RUNNING = [("a", 1, 5), ("b", 1, 1), ("a", 2, 5), ("a", 3, 9), ("b", 2, 2)]
SCHEMA = pa.schema([("id", pa.string()), ("t", pa.int64()), ("u", pa.float64())])


def records(readings: list[Any]) -> list[dict[str, Any]]:
    return [{"id": key, "t": t, "u": None} for key, t in readings]


def columns(values: list[dict[str, Any]], timestamps: list[int] | None = None) -> ColumnBatch:
    stamps = None if timestamps is None else np.array(timestamps)
    return ColumnBatch(pa.RecordBatch.from_pylist(values, schema=SCHEMA), stamps, rows_as_dicts)


def rolling(aggregate: FieldAggregate = COUNT_AND_MAX) -> RollingFieldsOperator:
    return RollingFieldsOperator(aggregate, itemgetter("id"))


def test_every_record_gives_its_keys_aggregates_so_far() -> None:
    run = OperatorRun(rolling()).push(*records(READINGS), at=[1, 2, 3, 4, 5])
    assert run.results == list(zip(RUNNING, [1, 2, 3, 4, 5], strict=True))


def test_columns_stay_columns_and_keep_their_order() -> None:
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
    """Of times in nanoseconds, say."""
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


def test_what_is_no_field_aggregate_is_refused() -> None:
    with pytest.raises(InvalidJob, match="FieldAggregate"):
        RollingFieldsOperator(max, itemgetter("id"))  # type: ignore[arg-type]


def test_an_unusable_value_is_named_with_its_record() -> None:
    with pytest.raises(UserFunctionError, match=r"record 1 of a batch of 2: \{'id': 'a', 't': 'x', 'u': None\}"):
        OperatorRun(rolling()).push(*records([("a", 1), ("a", "x")]))


ALL = F.of(F.count(), F.count("t"), F.sum("t"), F.mean("t"), F.min("t"), F.max("t"), F.min("u"), F.max("u"), F.sum("u"))
record = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "t": st.none() | st.integers(-1000, 1000),
        "u": st.none() | st.integers(-100, 100).map(lambda n: n / 4),
    }
)


@given(history=st.lists(st.lists(record, min_size=1, max_size=25), max_size=4), form=st.integers(0, 15))
@settings(deadline=None, max_examples=60)
def test_columns_and_rows_agree(history: list[Any], form: int) -> None:
    by_rows, mixed = OperatorRun(rolling(ALL)), OperatorRun(rolling(ALL))
    for number, part in enumerate(history):
        by_rows.push_batch(RowBatch(part))
        mixed.push_batch(columns(part) if form >> number & 1 else RowBatch(part))
    assert mixed.values == by_rows.values
