"""Decoded objects become columns only if an operator requests columns. Their values never change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import RecordFormatError
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.object_batch import ObjectBatch, ObjectColumns
from penstock.graph.operator import Operator
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writer import FEW_RECORDS
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.operators.aggregate.rolling import RollingFieldsOperator
from penstock.taskmanager.operators.event_time.watermark_generator import create_generator
from penstock.taskmanager.operators.select import SelectOperator
from penstock.taskmanager.operators.simple import FilterOperator, MapBatchesOperator, ProjectOperator
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.time_windows import TumblingEventTimeWindows
from penstock.windowing.window_function import WindowFunctionSpec
from tests.unit.taskmanager.support import exchange
from tests.value_difference import difference


class Bid(msgspec.Struct):
    auction: int
    price: float | None = None


class Event(msgspec.Struct):
    time: int
    kind: str
    bid: Bid | None = None


class Flat(msgspec.Struct):
    time: int
    kind: str
    price: float


class ByKind:
    """A key selector that reads a field and declares it."""

    field = "kind"

    def __call__(self, value: Any) -> Any:
        return value.kind


def batch_of(records: list[Any], cls: type = Event) -> ObjectBatch:
    batch = JsonLinesFormat(cls).decoder(b"")(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    assert isinstance(batch, ObjectBatch)
    return batch


def events(count: int) -> list[Event]:
    return [Event(n, "ab"[n % 2], Bid(n, n / 2) if n % 3 else None) for n in range(count)]


@pytest.fixture
def no_nested_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    make = ObjectColumns.column

    def column(self: ObjectColumns, objects: list[Any], index: int) -> Any:
        assert self.schema.field(index).name != "bid", "a nested record became a column"
        return make(self, objects, index)

    monkeypatch.setattr(ObjectColumns, "column", column)


class Punctuated(WatermarkGenerator):
    def on_event(self, value: Any, timestamp: int) -> int | None:
        return timestamp if timestamp % 4 == 3 else None

    def on_periodic_emit(self) -> int | None:
        return None


@pytest.mark.usefixtures("no_nested_columns")
@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_monotonous_timestamps(),
        WatermarkStrategy.for_generator(Punctuated),
    ],
    ids=["bounded", "punctuated"],
)
def test_timestamps_and_watermarks_from_a_field_need_no_other_columns(
    strategy: WatermarkStrategy,
) -> None:
    records = events(10)
    parts = list(create_generator(strategy.with_timestamp_assigner("time")).process(batch_of(records)))
    assert all(isinstance(part, ObjectBatch) for part, _ in parts)
    rows = [part.rows() for part, _ in parts]
    assert difference(records, [value for part in rows for value in part.values]) is None
    assert [time for part in rows for time in part.timestamps or ()] == list(range(10))


@pytest.mark.usefixtures("no_nested_columns")
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("kind", [Exchange.KEY_GROUP, Exchange.FORWARD, Exchange.BROADCAST], ids=lambda kind: kind.name)
@pytest.mark.parametrize("takes_columns", [True, False])
def test_nested_records_are_sent_unchanged(kind: Exchange, targets: int, *, takes_columns: bool) -> None:
    records = events(30)
    got = sent(batch_of(records), kind, targets, takes_columns=takes_columns)
    values = sorted((value for part in got for value in part.rows().values), key=attrgetter("time"))
    copies = targets if kind is Exchange.BROADCAST else 1
    assert difference([record for record in records for _ in range(copies)], values) is None


@pytest.mark.parametrize("takes_columns", [True, False])
def test_flat_records_are_sent_as_columns_only_to_operators_on_columns(*, takes_columns: bool) -> None:
    records = [Flat(n, "ab"[n % 2], n / 2) for n in range(FEW_RECORDS)]
    got = sent(batch_of(records, Flat), Exchange.KEY_GROUP, 2, takes_columns=takes_columns)
    assert all(isinstance(part, ColumnBatch) == takes_columns for part in got)
    values = sorted((value for part in got for value in part.rows().values), key=attrgetter("time"))
    assert difference(records, values) is None


@pytest.mark.parametrize("kind", [Exchange.KEY_GROUP, Exchange.FORWARD, Exchange.BROADCAST], ids=lambda kind: kind.name)
def test_small_batches_are_sent_as_rows_and_joined(kind: Exchange) -> None:
    records = [Flat(n, "ab"[n % 2], n / 2) for n in range(FEW_RECORDS + 20)]
    batches = [records[:8], records[8:10], records[10 : 10 + FEW_RECORDS], records[10 + FEW_RECORDS :]]
    got = sent([batch_of(batch, Flat) for batch in batches], kind, 1, takes_columns=True)
    assert [kind for kind, _ in groupby(got, type)] == [RowBatch, ColumnBatch, RowBatch]
    assert len(got[0]) == 10
    assert difference(records, [value for part in got for value in part.rows().values]) is None


def sent(batch: Batch | list[ObjectBatch], kind: Exchange, targets: int, *, takes_columns: bool) -> list[Batch]:
    partitioning = Partitioning(kind, ByKind(), key_field="kind") if kind is Exchange.KEY_GROUP else Partitioning(kind)
    rows: list[bytes] = []
    spec = replace(exchange(partitioning, targets), takes_columns=takes_columns)
    writer = create_writer(spec, 0, lambda target, row: rows.append(row))
    for part in batch if isinstance(batch, list) else [batch]:
        writer.write(part)
    writer.flush()
    return [part for part in (decode_buffer(row).batch() for row in rows) if part is not None]


OPERATORS: dict[str, Callable[[], Operator]] = {
    "rolling": lambda: RollingFieldsOperator(FieldAggregate.sum("time"), ByKind()),
    "window": lambda: WindowOperator(
        TumblingEventTimeWindows.of(7), WindowFunctionSpec.aggregate(FieldAggregate.sum("time")), ByKind()
    ),
    "filter": lambda: FilterOperator(pc.field("kind") == "a"),
    "nested filter": lambda: FilterOperator(pc.field("bid", "auction") == 4),
    "project": lambda: ProjectOperator([1, 0]),
}


@pytest.mark.usefixtures("no_nested_columns")
@pytest.mark.parametrize("name", ["rolling", "window"])
def test_operators_on_columns_request_only_the_columns_they_read(name: str) -> None:
    batch = batch_of(events(40)).with_timestamps(np.arange(40))
    assert sorted(results(name, batch)) == sorted(results(name, batch.rows())) != []


@pytest.mark.usefixtures("no_nested_columns")
def test_an_expression_on_a_plain_field_needs_no_nested_column() -> None:
    assert (
        difference([event for event in events(40) if event.kind == "a"], results("filter", batch_of(events(40))))
        is None
    )


def results(name: str, batch: Batch) -> list[Any]:
    run = OperatorRun(OPERATORS[name]())
    run.operator.process_batch(batch)
    run.watermark(1000)
    values = [value for value, _ in run.output.records]
    run.close()
    return values


def test_an_expression_reads_a_nested_field() -> None:
    assert results("nested filter", batch_of(events(10))) == [Event(4, "a", Bid(4, 2.0))]


def test_project_makes_only_the_columns_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"time": int, "kind": str, "price": float}
    batch = JsonLinesFormat(fields, record="tuple").decoder(b"")(b'{"time":1,"kind":"a","price":2}\n')
    monkeypatch.setattr(ObjectBatch, "columns", property(lambda self: pytest.fail("all columns were made")))
    assert results("project", batch) == [("a", 1)]


@given(
    count=st.integers(1, 20),
    requested=st.sets(st.sampled_from([0, 1, 2])),
    cuts=st.lists(st.tuples(st.booleans(), st.integers(0, 19), st.integers(0, 19)), max_size=3),
)
def test_columns_made_before_a_slice_match_its_records(
    count: int, requested: set[int], cuts: list[tuple[bool, int, int]]
) -> None:
    records = events(count)
    batch = batch_of(records).with_timestamps(np.arange(count))
    for index in requested:
        batch.column_at(index)
    for is_slice, first, second in cuts:
        size = len(batch)
        if is_slice:
            begin, end = sorted((first % (size + 1), second % (size + 1)))
            batch, records = batch.slice(begin, end), records[begin:end]
        elif size:
            positions = [first % size, second % size]
            batch, records = batch.take(np.array(positions)), [records[position] for position in positions]
    rows = batch.rows()
    assert difference(records, rows.values) is None
    assert rows.timestamps == [record.time for record in records]
    assert batch.columns.to_pylist() == [msgspec.to_builtins(record) for record in records]


def test_a_missing_time_names_the_record() -> None:
    class Late(msgspec.Struct):
        id: str
        time: int | None = None

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    batch = JsonLinesFormat(Late).decoder(b"")(b'{"id":"a","time":1}\n{"id":"b"}\n')
    with pytest.raises(RecordFormatError, match=r"'id': 'b'"):
        list(create_generator(strategy).process(batch))
    with pytest.raises(RecordFormatError, match="no field 'at': the records have the columns id, time"):
        list(create_generator(strategy.with_timestamp_assigner("at")).process(batch))


class Zoned(msgspec.Struct):
    number: int
    at: datetime | None = None
    clock: time | None = None


TIMES = [
    "2024-07-01T12:00:00",
    "2024-07-01T12:00:00Z",
    "2024-07-01T12:00:00.000001+02:00",
    "1969-01-01T00:00:00-05:30",
    None,
]
CUTS = st.sets(st.integers(1, 7))
DECLARED: list[Any] = [
    Zoned,
    Types.ROW_NAMED(["number", "at", "price"], [Types.INT(), Types.SQL_TIMESTAMP(), Types.FLOAT()]),
]


@pytest.mark.parametrize("declared", DECLARED, ids=["class", "row"])
@given(times=st.lists(st.sampled_from(TIMES), min_size=1, max_size=8), cuts=CUTS)
@settings(deadline=None, max_examples=40)
def test_columns_of_decoded_json_have_the_same_times_and_floats_as_rows(
    declared: Any, times: list[str | None], cuts: set[int]
) -> None:
    decode = JsonLinesFormat(declared).decoder(b"")
    lines = [msgspec.json.encode({"number": n, "at": at, "price": 0.1}) + b"\n" for n, at in enumerate(times)]
    mapped = OperatorRun(MapBatchesOperator(lambda batch: batch))
    selected = OperatorRun(SelectOperator((("at", pc.field("at")),), keeps=False))
    kept = OperatorRun(FilterOperator(pc.field("number") >= 0))
    rows: list[Any] = []
    ends = [*sorted(cut for cut in cuts if cut < len(lines)), len(lines)]
    for begin, end in zip([0, *ends], ends, strict=False):
        rows += decode(b"".join(lines[begin:end])).rows().values
        for run in (mapped, selected, kept):
            run.push_batch(decode(b"".join(lines[begin:end])))
    seen = [{"number": row.number, "at": row.at} for row in rows]
    if declared is not Zoned:
        seen = [{**record, "price": row.price} for record, row in zip(seen, rows, strict=True)]
    assert difference(seen, [{name: record[name] for name in seen[0]} for record in mapped.values]) is None
    assert difference([{"at": row["at"]} for row in seen], selected.values) is None
    assert difference(rows, kept.values) is None


def test_expressions_compare_zoned_times_of_json_by_their_instant() -> None:
    lines = [{"number": 1, "at": "2024-07-01T12:00:00+02:00"}, {"number": 2, "at": "2024-07-01T11:00:00Z"}]
    run = OperatorRun(FilterOperator(pc.field("at") > pa.scalar(datetime(2024, 7, 1, 10, 30, tzinfo=UTC))))
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    assert [record.number for record in run.push_batch(JsonLinesFormat(Zoned).decoder(b"")(data)).values] == [2]


def test_a_time_of_day_with_a_zone_has_no_column_and_is_refused() -> None:
    data = b'{"number": 1, "clock": "12:00:00+02:00"}\n'
    batch = JsonLinesFormat(Zoned).decoder(b"")(data)
    for records in (batch, batch.rows()):
        with pytest.raises(RecordFormatError, match="a time with a zone has no column"):
            OperatorRun(MapBatchesOperator(lambda columns: columns)).push_batch(records)
