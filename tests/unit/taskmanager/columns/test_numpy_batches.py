"""The columns that operators make of numpy scalars, and their values in functions, state and sinks.

The type and the values of a column depend neither on the ends of batches nor on the path of the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.errors import RecordFormatError
from penstock.datastream.columns import col
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ListStateDescriptor
from penstock.datastream.window import FieldAggregate
from penstock.records.batch import RowBatch
from penstock.taskmanager.operators.select import SelectOperator
from penstock.taskmanager.operators.simple import MapBatchesOperator
from penstock.testing import JobHarness
from penstock.testing.operator_run import OperatorRun
from tests.value_difference import difference

NUMBERS: list[tuple[Any, Any, str]] = [
    *((kind(100), 100, "int64") for kind in (np.int8, np.int16, np.int32, np.int64, np.longlong)),
    *((kind(200), 200, "int64") for kind in (np.uint8, np.uint16, np.uint32)),
    *((kind(1.5), 1.5, "double") for kind in (np.float16, np.float32, np.float64)),
    (np.int8(-128), -128, "int64"),
    (np.uint64(2**63 + 1), 2**63 + 1, "uint64"),
    (np.uint64(4), 4, "uint64"),
    (2**64 - 1, 2**64 - 1, "uint64"),
    (np.float32(0.1), float(np.float32(0.1)), "double"),
    (np.bool_(True), True, "bool"),
    (7, 7, "int64"),
    (2.5, 2.5, "double"),
    (3.0, 3.0, "double"),
    (False, False, "bool"),
]
NUMBERS_OF_ROWS = [sample for sample in NUMBERS if sample[2] != "uint64" or sample[1] >= 2**63]
"""Numbers whose column keeps its type when records travel as rows. A smaller `uint64` becomes an int, so `int64`."""
SAMPLES: list[tuple[Any, Any, str]] = [
    *NUMBERS,
    (None, None, ""),
    (np.str_("a"), "a", "string"),
    ("b", "b", "string"),
    (np.bytes_(b"a"), b"a", "binary"),
    *((np.datetime64(time, "D"), date(2024, 1, 2), "date32[day]") for time in ("2024-01-02",)),
    *((np.datetime64("2024-01-02", unit), datetime(2024, 1, 2), "timestamp[us]") for unit in ("h", "s", "ms", "us")),
    (datetime(2024, 1, 3), datetime(2024, 1, 3), "timestamp[us]"),
    (np.datetime64(1000, "ns"), datetime(1970, 1, 1, 0, 0, 0, 1), "timestamp[ns]"),
    (np.datetime64("NaT", "s"), None, ""),
    *((np.timedelta64(60, unit), timedelta(**{name: 60}), "duration[us]") for unit, name in (("s", "seconds"),)),  # type: ignore[call-overload]
    (np.timedelta64(1, "h"), timedelta(hours=1), "duration[us]"),
    (np.array([1, 2], np.int8), [1, 2], "list<item: int8>"),
    (np.array([1, 2], np.int16), [1, 2], "list<item: int16>"),
]
NESTED: list[tuple[Any, Any, str]] = [
    ([np.int8(1), None], [1, None], "list<item: int64>"),
    ([2, np.float16(1.5)], [2.0, 1.5], "list<item: double>"),
    ({"x": np.float32(0.5)}, {"x": 0.5}, "struct<x: double>"),
    ({"x": {"y": [np.uint8(3)]}}, {"x": {"y": [3]}}, "struct<x: struct<y: list<item: int64>>>"),
]


def typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records and the type of the column for each value that is not None."""
    valid = batch.column("a").is_valid()
    names = pc.if_else(valid, str(batch.schema.field("a").type), "")
    return batch.append_column("type", names)


def cut(records: list[Any], cuts: set[int]) -> Iterator[list[Any]]:
    ends = [*sorted(cut for cut in cuts if cut < len(records)), len(records)]
    for begin, end in zip([0, *ends], ends, strict=False):
        yield records[begin:end]


@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=14), st.sets(st.integers(1, 13)))
@settings(deadline=None, max_examples=40)
def test_a_column_of_numpy_scalars_equals_that_of_python_values_for_any_ends_of_batches(
    samples: list[tuple[Any, Any, str]], cuts: set[int]
) -> None:
    mapped = OperatorRun(MapBatchesOperator(typed))
    selected = OperatorRun(SelectOperator((("a", pc.field("a")),), keeps=False))
    for values in cut([{"a": value} for value, _, _ in samples], cuts):
        mapped.push_batch(RowBatch(values))
        selected.push_batch(RowBatch(values))
    assert difference([{"a": plain, "type": kind} for _, plain, kind in samples], mapped.values) is None
    assert difference([{"a": plain} for _, plain, _ in samples], selected.values) is None


@pytest.mark.parametrize(
    "values", [[2**64 - 1, np.uint64(4)], [np.uint64(4), None, 2**63], [2**63, np.uint64(1)] * 400]
)
def test_large_integers_of_python_and_numpy_have_the_same_column(values: list[Any]) -> None:
    run = OperatorRun(MapBatchesOperator(typed)).push_batch(RowBatch([{"a": value} for value in values]))
    expected = [
        {"a": None if value is None else int(value), "type": "" if value is None else "uint64"} for value in values
    ]
    assert difference(expected, run.values) is None


@pytest.mark.parametrize(("value", "plain", "kind"), NESTED)
def test_numpy_scalars_in_lists_and_dicts_become_python_values(value: Any, plain: Any, kind: str) -> None:
    run = OperatorRun(MapBatchesOperator(typed)).push({"a": value}, {"a": None}).push({"a": value})
    expected = [(plain, kind), (None, ""), (plain, kind)]
    assert difference([{"a": value, "type": kind} for value, kind in expected], run.values) is None


@pytest.mark.parametrize("others", [[], [1], [1.5], [1] * 600])
@pytest.mark.parametrize("value", [np.longdouble(1.5), np.complex64(1j), np.void(b"a"), np.datetime64("NaT")])
def test_a_numpy_scalar_without_an_equal_python_value_is_refused_and_never_rounded(
    value: Any, others: list[Any]
) -> None:
    run = OperatorRun(MapBatchesOperator(typed))
    if isinstance(value, np.datetime64):
        assert run.push({"a": value}, *({"a": other} for other in others)).values[0]["a"] is None
        return
    with pytest.raises(RecordFormatError, match="cannot be converted to columns"):
        run.push(*({"a": other} for other in others), {"a": value})


NARROW = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.int64()), "int64"),
    **dict.fromkeys((pa.float16(), pa.float32(), pa.float64()), "double"),
    **{pa.timestamp(unit): "timestamp[us]" for unit in ("s", "ms", "us")},
    **{pa.duration(unit): "duration[us]" for unit in ("s", "ms", "us")},
    pa.timestamp("ms", "Europe/Berlin"): "timestamp[us, tz=Europe/Berlin]",
}


@pytest.mark.parametrize("second", ["map_batches", "select", "filter"])
@pytest.mark.parametrize(("narrow", "expected"), NARROW.items(), ids=str)
def test_a_narrow_column_has_the_same_type_after_every_exchange(
    narrow: pa.DataType, expected: str, second: str
) -> None:
    def change(stream: DataStream) -> DataStream:
        if second == "filter":
            return stream.filter(col("n") >= 0)
        return stream.select("n", "a") if second == "select" else stream.map_batches(lambda batch: batch)

    def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "a", pc.cast(batch.column("a"), narrow))

    with JobHarness() as harness:
        results = harness.source("in").map_batches(narrowed)
        ways = {"chained": results, "columns": results.global_(), "rows": results.rebalance()}
        for name, way in ways.items():
            harness.collect(change(way).map_batches(typed), name)
        base: Any = datetime(2024, 1, 1) if "timestamp" in expected else timedelta(1) if "duration" in expected else 1
        harness.push("in", {"n": 0, "a": base}, {"n": 1, "a": None}, {"n": 2, "a": base})
        outputs = {name: harness.outputs(name) for name in ways}
    assert difference(outputs["chained"], outputs["columns"]) is None
    assert difference(outputs["chained"], outputs["rows"]) is None
    assert [record["type"] for record in outputs["rows"]] == [expected, "", expected]


class Remembers(KeyedProcessFunction):
    """A function that emits each value as state returns it, and the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values"))

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterator[Any]:
        self.values.add(value["a"])
        yield value["n"], value["a"], list(self.values.get())[-1], ctx.get_current_key(), value["type"]


def ways(harness: JobHarness) -> None:
    """Declare one output per path: through rows, a keyed exchange, state, aggregates, and columns after columns."""
    mapped = harness.source("in").map_batches(typed)
    harness.collect(mapped, "chained")
    harness.collect(mapped.rebalance().map(lambda record: record), "rows")
    harness.collect(mapped.rebalance().map_batches(typed_again), "columns")
    harness.collect(mapped.key_by(lambda record: record["a"]).process(Remembers()), "state")
    least = FieldAggregate.of(FieldAggregate.max("a"), FieldAggregate.max("n"))
    harness.collect(mapped.filter(col("n") >= 0).key_by("n").aggregate(least), "aggregate")


def typed_again(batch: pa.RecordBatch) -> pa.RecordBatch:
    return typed(batch.drop_columns(["type"]))


@given(
    st.lists(st.sampled_from(NUMBERS_OF_ROWS), min_size=1, max_size=8),
    st.sets(st.integers(1, 7)),
    st.sampled_from(["hashmap", "rocksdb"]),
    st.integers(1, 2),
    st.integers(0, 8),
)
@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
def test_every_path_through_a_job_has_the_same_types_also_after_a_crash(
    samples: list[tuple[Any, Any, str]], cuts: set[int], backend: str, parallelism: int, crash: int
) -> None:
    with JobHarness(parallelism, backend=backend) as harness:
        ways(harness)
        records = [{"n": number, "a": value} for number, (value, _, _) in enumerate(samples)]
        for number, part in enumerate(cut(records, cuts)):
            harness.push("in", *part)
            harness.run()
            if number == crash // 2:
                harness.snapshot()
            if number == crash:
                harness.crash()
        plain = [{"n": n, "a": value, "type": kind} for n, (_, value, kind) in enumerate(samples)]
        for name in ("chained", "rows", "columns"):
            seen = sorted(harness.outputs(name), key=lambda record: record["n"])
            assert difference(plain, seen) is None, name
        kept = [record[:3] for record in sorted(harness.outputs("state"))]
        assert difference([(r["n"], r["a"], r["a"]) for r in plain], kept) is None
        totals = sorted(harness.outputs("aggregate"))
        assert difference([(r["n"], r["a"], r["n"]) for r in plain], totals) is None
