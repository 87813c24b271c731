"""Records that name their fields are matched by name with declared fields."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import PenstockError, RecordFormatError, StateTypeError
from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.connectors.formats.bulk import CsvWriterFactory, ParquetWriterFactory, columns_of
from penstock.connectors.formats.encode import CsvEncoder, JsonLinesEncoder
from penstock.connectors.formats.orc import OrcWriterFactory
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.simple.collection import CollectionSource
from penstock.datastream.formats.csv import CsvRowSerializationSchema
from penstock.datastream.formats.json import JsonRowSerializationSchema
from penstock.datastream.streams.arguments.row_results import with_row_results
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_dicts, rows_as_rows, rows_as_tuples
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.unit.state.support import KINDS, Backends

TYPE = Types.ROW_NAMED(["to", "from_"], [Types.STRING(), Types.STRING()])
WANTED = Row(to="B", from_="A")


class Swapped(NamedTuple):
    from_: str
    to: str


@dataclass
class SwappedData:
    from_: str
    to: str


class SwappedStruct(msgspec.Struct):
    from_: str
    to: str


SWAPPED = [
    Row(from_="A", to="B"),
    {"from_": "A", "to": "B"},
    Swapped("A", "B"),
    SwappedData("A", "B"),
    SwappedStruct("A", "B"),
    ("B", "A"),
    ["B", "A"],
    Row("B", "A"),
]
WRONG = [
    Row(from_="A", too="B"),
    Row(from_="A"),
    Row(from_="A", to="B", via="C"),
    {"from_": "A"},
    {"from_": "A", "to": "B", "via": "C"},
    ("B",),
    ("B", "A", "C"),
    "BA",
    7,
]


def by_name(value: Any) -> str:
    return type(value).__name__ + str(value)[:30]


@pytest.mark.parametrize("record", SWAPPED, ids=by_name)
def test_a_row_type_accepts_named_fields_by_name(record: Any) -> None:
    assert TYPE.convert(record) == WANTED
    assert TYPE.accepts(record)
    assert TYPE.to_storable(record) == TYPE.to_internal_type(record) == ("B", "A")


@pytest.mark.parametrize("record", WRONG, ids=by_name)
def test_a_row_type_refuses_unknown_and_missing_names(record: Any) -> None:
    assert not TYPE.accepts(record)
    for take in (TYPE.convert, TYPE.to_storable, TYPE.to_internal_type):
        with pytest.raises(FieldMismatch, match="declared are"):
            take(record)


def test_the_error_names_missing_and_unknown_fields() -> None:
    with pytest.raises(FieldMismatch, match="no field 'to' and it has an unknown field 'too', declared are to, from_"):
        TYPE.convert(Row(from_="A", too="B"))


def test_a_row_type_without_names_accepts_other_names_by_position_and_generated_ones_by_name() -> None:
    unnamed = Types.ROW([Types.STRING(), Types.STRING()])
    assert list(unnamed.convert(Row(x="A", y="B"))) == ["A", "B"]
    assert list(unnamed.convert(Row(f1="A", f0="B"))) == ["B", "A"]
    with pytest.raises(FieldMismatch):
        unnamed.convert(Row(f1="A", x="B"))


def test_nested_rows_are_matched_by_name_and_keep_their_kind() -> None:
    outer = Types.ROW_NAMED(["inner", "n"], [Types.LIST(TYPE), Types.LONG()])
    given = Row.of_kind(RowKind.DELETE, n=1, inner=[Row(from_="A", to="B")])
    assert outer.convert(given) == Row.of_kind(RowKind.DELETE, inner=[WANTED], n=1)


@pytest.mark.parametrize("record", SWAPPED, ids=by_name)
def test_declared_results_and_collections_are_matched_by_name(record: Any) -> None:
    function = with_row_results(lambda value: record, TYPE, "map")
    assert function.map(0) == WANTED
    assert CollectionSource([record], TYPE).values == [WANTED]


def test_a_result_with_unknown_names_is_refused_by_name() -> None:
    function = with_row_results(lambda value: Row(from_="A", via="B"), TYPE, "map")
    with pytest.raises(RecordFormatError, match="unknown field 'via'"):
        function.map(0)


@pytest.mark.parametrize("ttl", [None, timedelta(hours=1)], ids=["for_ever", "ttl"])
@pytest.mark.parametrize("kind", KINDS)
def test_state_accepts_named_fields_by_name_and_returns_the_same_before_and_after_a_restore(
    kind: str, ttl: Any, tmp_path: Path
) -> None:
    backends = Backends(kind, tmp_path)
    values = ValueStateDescriptor("v", TYPE, ttl=ttl)
    lists = ListStateDescriptor("l", TYPE, ttl=ttl)
    maps = MapStateDescriptor("m", Types.STRING(), TYPE, ttl=ttl)
    with_key = backends.create()
    with_key.key_context.key = "k"
    try:
        value, items, entries = (with_key.get_state(each) for each in (values, lists, maps))
        for record in SWAPPED:
            value.update(record)
            assert value.value() == WANTED
            items.add(record)
            entries.put("x", record)
            assert entries.get("x") == WANTED
        assert items.get() == [WANTED] * len(SWAPPED)
        for record in WRONG[:3]:
            with pytest.raises(StateTypeError, match="field"):
                value.update(record)
    finally:
        backends.close()


def encoded(encoder: Any) -> Any:
    return lambda records: encoder.encode_batch(records)


def bulk(factory: Any, read: Any) -> Any:
    def write(records: list[Any]) -> list[list[Any]]:
        sink = io.BytesIO()
        writer = factory.create(sink)
        writer.add(records)
        writer.finish()
        return read(sink.getvalue())

    return write


def table(content: bytes) -> list[list[Any]]:
    rows = pq.read_table(pa.BufferReader(content))
    return [[row["to"], row["from_"]] for row in rows.to_pylist()]


def orc_table(content: bytes) -> list[list[Any]]:
    from pyarrow import orc

    return [[row["to"], row["from_"]] for row in orc.ORCFile(pa.BufferReader(content)).read().to_pylist()]


def csv_rows(content: bytes) -> list[list[Any]]:
    return list(csv.reader(io.StringIO(content.decode())))


def json_rows(content: bytes) -> list[list[Any]]:
    return [[row["to"], row["from_"]] for row in map(json.loads, content.splitlines())]


FIELDS = {"to": str, "from_": str}
SINKS = {
    "json": lambda records: json_rows(JsonLinesEncoder(list(FIELDS)).encode_batch(records)),
    "csv": lambda records: csv_rows(CsvEncoder(list(FIELDS)).encode_batch(records)),
    "csv-bulk": bulk(CsvWriterFactory(FIELDS), csv_rows),
    "parquet": bulk(ParquetWriterFactory(FIELDS), table),
    "orc": bulk(OrcWriterFactory(FIELDS), orc_table),
    "json-messages": lambda records: json_rows(
        b"\n".join(JsonRowSerializationSchema.builder().with_type_info(TYPE).build().serialize_batch(records))
    ),
    "csv-messages": lambda records: csv_rows(
        b"".join(map(CsvRowSerializationSchema.Builder(TYPE).build().serialize, records))
    ),
}


@pytest.mark.parametrize("sink", SINKS)
def test_every_format_writes_named_fields_by_name(sink: str) -> None:
    write = SINKS[sink]
    for record in SWAPPED:
        assert write([record, record]) == [["B", "A"]] * 2, record
    assert write(SWAPPED) == [["B", "A"]] * len(SWAPPED)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("record", WRONG, ids=by_name)
def test_every_format_refuses_unknown_and_missing_names(sink: str, record: Any) -> None:
    with pytest.raises((PenstockError, FieldMismatch), match=r"field|declared"):
        SINKS[sink]([SWAPPED[0], record])


@pytest.mark.parametrize("make_rows", [rows_as_dicts, rows_as_rows, rows_as_tuples])
@pytest.mark.parametrize("factory", [ParquetWriterFactory(FIELDS), CsvWriterFactory(FIELDS)], ids=["parquet", "csv"])
def test_columns_and_their_rows_are_written_in_the_same_way(factory: Any, make_rows: Any) -> None:
    batch = ColumnBatch(pa.record_batch({"from_": ["A"], "to": ["B"]}), None, make_rows)
    contents = []
    for write in (lambda writer: writer.add_columns(batch), lambda writer: writer.add(batch.rows().values)):
        sink = io.BytesIO()
        writer = factory.create(sink)
        write(writer)
        writer.finish()
        contents.append(table(sink.getvalue()) if factory.suffix == ".parquet" else csv_rows(sink.getvalue()))
    assert contents[0] == contents[1] == [["A", "B"] if make_rows is rows_as_tuples else ["B", "A"]]


def test_columns_with_unknown_or_missing_names_are_refused() -> None:
    writer = ParquetWriterFactory(FIELDS).create(io.BytesIO())
    for columns in ({"from_": ["A"], "to": ["B"], "via": ["C"]}, {"from_": ["A"]}):
        with pytest.raises(RecordFormatError, match=r"via|no field 'to'"):
            writer.add_columns(ColumnBatch(pa.record_batch(columns), None, rows_as_dicts))


def test_a_dict_may_omit_a_field_that_is_declared_with_none() -> None:
    shape = RecordShape.of({"id": str, "celsius": float | None})
    assert columns_of([{"id": "a"}, {"celsius": 1.5, "id": "b"}], shape).to_pylist() == [
        {"id": "a", "celsius": None},
        {"id": "b", "celsius": 1.5},
    ]
    with pytest.raises(RecordFormatError, match="no field 'id'"):
        columns_of([{"celsius": 1.5}], shape)


def test_nested_records_are_written_by_name() -> None:
    shape = RecordShape.of(Types.ROW_NAMED(["pair"], [TYPE]))
    assert columns_of([Row(pair=Row(from_="A", to="B"))], shape).to_pylist() == [{"pair": {"to": "B", "from_": "A"}}]
    for inner in (Row(from_="A", too="B"), {"to": "B"}):
        with pytest.raises(RecordFormatError, match="no field"):
            columns_of([Row(pair=inner)], shape)


def test_a_jdbc_sink_accepts_named_fields_by_name(tmp_path: Path) -> None:
    from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink

    path = tmp_path / "db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table moves (t text, f text)")
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}").build()
    sink = JdbcSink.sink("insert into moves (t, f) values (?, ?)", TYPE, options)
    writer = sink.create_writer(None, [])  # type: ignore[arg-type]
    writer.write(SWAPPED, None, 0)
    writer.flush()
    with pytest.raises(RecordFormatError, match="unknown field 'too'"):
        writer.write([Row(from_="A", too="B")], None, 0)
    writer.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("select * from moves").fetchall() == [("B", "A")] * len(SWAPPED)


@settings(max_examples=50, deadline=None)
@given(names=st.lists(st.sampled_from("abcdef"), unique=True, min_size=1), data=st.data())
def test_the_order_of_names_never_matters(names: list[str], data: st.DataObject) -> None:
    given = data.draw(st.permutations(names))
    record = {name: ord(name) for name in given}
    fields = DeclaredFields(names)
    wanted = [ord(name) for name in names]
    assert list(fields.values(Row(**record))) == list(fields.values(record)) == wanted
    assert list(map(list, zip(*fields.lists([Row(**record), record, tuple(wanted)]), strict=True))) == [wanted] * 3
