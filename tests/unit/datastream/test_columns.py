"""Column expressions: they give the same results on columns, which remain columns, and on records of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.columns import col, count, lit, max, mean, min, sum
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.window import EventTimeTrigger, GlobalWindows, TumblingEventTimeWindows
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_dicts
from penstock.taskmanager.operators.select import SelectOperator
from penstock.taskmanager.operators.simple import FilterOperator
from penstock.testing import JobHarness
from penstock.testing.operator_run import OperatorRun
from tests.unit.datastream.streams import start


@dataclass
class Reading:
    id: str
    temp: float


RECORDS: dict[str, Any] = {
    "dicts": lambda id, temp: {"id": id, "temp": temp},
    "rows": lambda id, temp: Row(id=id, temp=temp),
    "objects": Reading,
}
READINGS = [("a", 10.0), ("a", 30.0), ("b", 25.0), ("a", 50.0), ("b", 15.0)]


@pytest.mark.parametrize("make", RECORDS.values(), ids=list(RECORDS))
def test_a_filter_and_aggregates_on_records_of_every_kind(make: Any) -> None:
    with JobHarness(2) as harness:
        readings = harness.source("readings")
        warm = readings.filter((col("temp") > 20) & ~col("id").isin(["x"]))
        harness.collect(warm.key_by("id").agg(mean("temp"), max("temp"), count()), "means")
        harness.push("readings", *[make(id, temp) for id, temp in READINGS])
        means = harness.outputs("means")
    assert sorted(means) == [("a", 30.0, 30.0, 1), ("a", 40.0, 50.0, 2), ("b", 25.0, 25.0, 1)]


def test_aggregates_of_windows() -> None:
    with JobHarness() as harness:
        pairs = harness.source("pairs")
        hundred = TumblingEventTimeWindows.of(100)
        harness.collect(pairs.key_by(0).window(hundred).agg(mean(1)), "means")
        harness.collect(pairs.window_all(hundred).agg(sum(1)), "sums")
        for number, pair in enumerate(READINGS):
            harness.push("pairs", pair, timestamp=number)
        harness.advance_watermark("pairs", 100)
        assert sorted(harness.outputs("means")) == [("a", 30.0), ("b", 20.0)]
        assert harness.outputs("sums") == [(130.0,)]


def columns() -> ColumnBatch:
    batch = pa.RecordBatch.from_pydict({"id": ["a", "b"], "temp": [10.0, 30.0]})
    return ColumnBatch(batch, np.array([1, 2], np.int64), no_rows)


def no_rows(batch: pa.RecordBatch) -> list[Any]:
    raise AssertionError("records were created")


def test_columns_remain_columns() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([{"id": "a", "temp": 1.0}])
    run = start(stream.select("id", fahrenheit=col("temp") * 2 + 32, one=lit(1)))
    run.output.emit = run.output.batches.append  # type: ignore[assignment, method-assign]
    [batch] = run.push_batch(columns()).output.batches
    assert isinstance(batch, ColumnBatch)
    assert batch.columns.to_pydict() == {"id": ["a", "b"], "fahrenheit": [52.0, 92.0], "one": [1, 1]}
    assert list(batch.timestamps) == [1, 2]  # type: ignore[arg-type]
    assert batch.make_rows is rows_as_dicts


def test_a_job_reads_a_parquet_file(tmp_path: Path) -> None:
    ids, temps = zip(*READINGS, strict=True)
    pq.write_table(pa.table({"id": ids, "temp": temps}), tmp_path / "readings.parquet")
    with JobHarness(2) as harness:
        source = FileSource.for_bulk_file_format(ParquetFormat(), f"file://{tmp_path}").build()
        readings = harness.environment().from_source(source, WatermarkStrategy.no_watermarks(), "readings")
        warm = readings.filter(col("temp") > 20).with_columns(twice=col("temp") * 2).filter(col("twice") < 100)
        harness.collect(warm.key_by("id").agg(min("twice"), count()), "least")
        harness.run()
        assert sorted(harness.outputs("least")) == [("a", 60.0, 1), ("b", 50.0, 1)]


def test_types_of_expressions_are_inferred() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    pairs = env.from_collection([("a", 1)])
    assert pairs.key_by(0).agg(sum(1), mean(1), count()).get_type() == Types.TUPLE(
        [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.LONG()]
    )
    assert pairs.key_by(lambda pair: object()).agg(count()).get_type() is None


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda stream: stream.select(), "select needs at least one field"),
        (lambda stream: stream.select(a=3), r"takes expressions, got a=3.*lit\(value\)"),
        (lambda stream: stream.with_columns(a="b"), "with_columns takes expressions"),
        (lambda stream: stream.key_by(0).agg(), "agg without an aggregate"),
        (lambda stream: stream.key_by(0).agg("temp"), r"agg takes aggregates of fields, got 'temp'"),
    ],
)
def test_invalid_arguments_are_refused(program: Any, message: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match=f"(?s){message}"):
        program(env.from_collection([("a", 1)]))


def test_a_missing_column_is_named() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").select("tmp"), "out")
        harness.push("numbers", {"temp": 1})
        with pytest.raises(PenstockError, match="select tmp of the columns temp"):
            harness.run()


A, B = {"id": 1}, {"id": 2, "note": "important"}


@pytest.mark.parametrize("pushes", [[(), (A, B)], [(), (B, A)], [(A,), (B,)], [(B,), (A,)]])
@pytest.mark.parametrize("expression", ["select", "filter"])
def test_records_of_different_fields_are_refused_for_any_ends_of_batches(
    pushes: list[tuple[dict[str, Any], ...]], expression: str
) -> None:
    operator = (
        FilterOperator(col("id") > 0) if expression == "filter" else SelectOperator((("id", col("id")),), keeps=True)
    )
    run = OperatorRun(operator)
    run.push(*pushes[0])
    with pytest.raises(PenstockError, match=r"with different fields.*only one has 'note'"):
        run.push(*pushes[1])


@pytest.mark.parametrize("windowed", [False, True])
def test_an_aggregate_that_is_a_tuple_is_one_field(windowed: bool) -> None:
    with JobHarness() as harness:
        pairs = harness.source("pairs").key_by("id")
        stream = pairs.window(GlobalWindows.create()).trigger(EventTimeTrigger.create()) if windowed else pairs
        harness.collect(stream.agg(max("p")), "largest")
        harness.push("pairs", {"id": "k", "p": (1, 2)})
        harness.close("pairs")
        assert harness.outputs("largest") == [("k", (1, 2))]
