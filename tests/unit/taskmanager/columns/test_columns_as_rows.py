"""Columns and rows are equivalent: every operator that accepts columns has the same values and types for both.

Histories contain NaN, infinities, -0.0, None, integers near the bounds of 64 bits and times before 1970. Batches are
split at random, both backends are used, and the operator is restored at another parallelism between batches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import penstock
from penstock.common.time import Duration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.columns import col
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import (
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FieldAggregate,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.graph import operations
from penstock.graph.operations import Operation
from penstock.state.hashmap import accumulator_table
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.columns.columnar import Part, by_columns, by_rows, histories

F = FieldAggregate
KEY = itemgetter("id")
ALL = F.of(
    *(aggregate("n") for aggregate in (F.sum, F.mean, F.min, F.max, F.count)),
    *(aggregate("x") for aggregate in (F.sum, F.mean, F.min, F.max, F.count)),
    F.sum("f"),
    F.min("f"),
    F.count(),
)
FLOATS = F.of(F.sum("x"), F.min("x"))
LATE = OutputTag("late")


def with_key(key: Any, context: Any, elements: Any) -> Iterator[Any]:
    yield key, context.window(), *elements


def window(assigner: Any, aggregate: FieldAggregate = ALL, lateness: int = 0, trigger: Any = None) -> Operation:
    return operations.Window(
        assigner=assigner,
        function=WindowFunctionSpec.aggregate(aggregate, with_key),
        trigger=trigger or assigner.get_default_trigger(None),
        key_selector=KEY,
        allowed_lateness_ms=lateness,
        late_tag=LATE if assigner.is_event_time() else None,
    )


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(3, "x", pa.compute.multiply(batch.column("x"), 2.0))


CASES: dict[type[Operation], dict[str, Callable[[], Operation]]] = {
    operations.RollingFields: {
        "all": lambda: operations.RollingFields(KEY, ALL),
        "one field": lambda: operations.RollingFields(KEY, FLOATS),
        "count": lambda: operations.RollingFields(KEY, F.count()),
        "float keys": lambda: operations.RollingFields(itemgetter("k"), F.of(F.count("x"), F.sum("x"))),
    },
    operations.Window: {
        "tumbling": lambda: window(TumblingEventTimeWindows.of(10, 3)),
        "tumbling, lateness": lambda: window(TumblingEventTimeWindows.of(10), lateness=25),
        "sliding": lambda: window(SlidingEventTimeWindows.of(20, 8)),
        "sliding, lateness": lambda: window(SlidingEventTimeWindows.of(20, 10), lateness=15),
        "sliding, integers": lambda: window(SlidingEventTimeWindows.of(20, 5), F.of(F.sum("n"), F.max("x"))),
        "sliding with gaps": lambda: window(SlidingEventTimeWindows.of(6, 10)),
        "tumbling by processing time": lambda: window(TumblingProcessingTimeWindows.of(10)),
        "sliding by processing time": lambda: window(SlidingProcessingTimeWindows.of(20, 10)),
        "global": lambda: window(GlobalWindows.create(), trigger=EventTimeTrigger.create()),
        "sessions": lambda: window(EventTimeSessionWindows.with_gap(7)),
        "sessions, lateness": lambda: window(EventTimeSessionWindows.with_gap(7), lateness=10),
        "sessions by processing time": lambda: window(ProcessingTimeSessionWindows.with_gap(7)),
        "counts": lambda: window(CountTumblingWindowAssigner.of(3)),
    },
    operations.Project: {"columns": lambda: operations.Project((0, 3, 1))},
    operations.Filter: {
        "floats": lambda: operations.Filter(col("x") > 0.5),
        "null": lambda: operations.Filter(col("n").is_null() | (col("f") < 1)),
    },
    operations.Select: {
        "chosen": lambda: operations.Select((("id", col("id")), ("y", col("x") * 2), ("n", col("n")))),
        "with fields": lambda: operations.Select((("less", col("n") > 3),), keeps=True),
    },
    operations.MapBatches: {"doubled": lambda: operations.MapBatches(doubled)},
    operations.TimestampsAndWatermarks: {
        name: lambda field=name: operations.TimestampsAndWatermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100)).with_timestamp_assigner(field)
        )
        for name in ("number", "at", "seconds", "day")
    },
    operations.Reduce: {"newest": lambda: operations.Reduce(KEY, lambda a, b: {**b, "x": a["x"]})},
    operations.RollingAggregate: {
        kind: lambda kind=kind: operations.RollingAggregate(KEY, kind, "plain")
        for kind in ("sum", "min", "max", "min_by", "max_by")
    },
}
"""Every kind of operator that accepts columns, and the rolling ones that make rows of columns."""

NOT_HERE: dict[type[Operation], str] = {
    operations.Operation: "the base of all",
    operations.InBatchMode: "uses the operators of `inner`",
    operations.Sink: "TAKES_COLUMNS lists the sinks that accept columns",
}

TAKES_COLUMNS = {
    "connectors/file/sink/writer.py": "unit/connectors/file/test_file_sink_formats.py",
    "connectors/lakehouse/files.py": "integration/lakehouse",
    "connectors/lakehouse/reader.py": "reads columns",
    "connectors/messages/decoder.py": "sets the timestamps of decoded columns",
    "connectors/spark/sink.py": "unit/connectors/test_spark.py",
    "connectors/tables/row_writers.py": "integration/sql",
    "records/columns.py": "Select, MapBatches",
    "taskmanager/exchange/rows.py": "all cases here",
    "taskmanager/exchange/writer.py": "all cases here",
    "taskmanager/operators/aggregate/rolling.py": "RollingFields",
    "taskmanager/operators/event_time/timestamps.py": "TimestampsAndWatermarks",
    "taskmanager/operators/simple.py": "Filter, Project, MapBatches",
    "taskmanager/operators/window/operator.py": "Window",
    "taskmanager/subtask.py": "measures the pace of any records",
}
"""Every module that treats columns differently from rows, and the test that compares the two."""

NAMES = [(kind, name) for kind, cases in CASES.items() for name in cases]
IDS = [f"{kind.__name__}, {name}" for kind, name in NAMES]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """State becomes columns as soon as columns arrive, and again after it was objects."""
    monkeypatch.setattr(accumulator_table, "_FEW", 1)
    monkeypatch.setattr(accumulator_table, "_PATIENCE", 0)


def check(kind: type[Operation], name: str, history: list[Part], backend: str) -> None:
    operation = CASES[kind][name]()
    assert by_columns(operation, history, backend) == by_rows(operation, history)


@pytest.mark.parametrize(("kind", "name"), NAMES, ids=IDS)
@given(history=histories)
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
def test_columns_and_rows_have_equal_results(kind: type[Operation], name: str, history: list[Part]) -> None:
    check(kind, name, history, "hashmap")


KEYED = [(kind, name) for kind, name in NAMES if CASES[kind][name]().is_keyed]


@pytest.mark.parametrize(("kind", "name"), KEYED)
@given(history=histories)
@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
def test_columns_and_rows_have_equal_results_on_rocksdb(kind: type[Operation], name: str, history: list[Part]) -> None:
    check(kind, name, history, "rocksdb")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(("kind", "name"), KEYED)
@given(history=histories)
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
def test_columns_and_rows_have_equal_results_in_many_histories(
    kind: type[Operation], name: str, backend: str, history: list[Part]
) -> None:
    check(kind, name, history, backend)


def kinds_of(base: type[Operation]) -> Iterator[type[Operation]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds_of(kind)


def test_every_operation_that_accepts_columns_is_compared() -> None:
    taking = {kind for kind in kinds_of(Operation) if "takes_columns" in vars(kind)}
    assert taking == {kind for kind in CASES if "takes_columns" in vars(kind)} | set(NOT_HERE)


def test_every_module_that_accepts_columns_is_compared() -> None:
    root = Path(penstock.__file__).parent
    asks = re.compile(r"isinstance\(\w+, (\w+ \| )*ColumnBatch|case ColumnBatch|type\(\w+\) is ColumnBatch")
    taking = {str(path.relative_to(root)) for path in root.rglob("*.py") if asks.search(path.read_text())}
    assert taking == set(TAKES_COLUMNS)
