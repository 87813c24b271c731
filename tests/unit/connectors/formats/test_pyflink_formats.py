"""Formats and connectors under PyFlink's names."""

from __future__ import annotations

import logging
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.datastream import connectors
from penstock.datastream.connectors.file_system import FileSink, FileSource, OnCheckpointRollingPolicy, RollingPolicy
from penstock.datastream.formats.csv import (
    CsvBulkWriters,
    CsvDialect,
    CsvFormat,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from penstock.table import DataTypes
from tests.unit.connectors.support import read_source, snapshot, visible, writer_context

ROW_TYPE = Types.ROW_NAMED(["id", "n", "tags"], [Types.STRING(), Types.LONG(), Types.LIST(Types.STRING())])
ROWS = [Row(id="a", n=1, tags=["x", "y"]), Row(id="b,c", n=None, tags=[])]


def csv_schema() -> CsvSchema:
    builder = CsvSchema.builder().add_string_column("id").add_number_column("n").add_array_column("tags", "|")
    return builder.set_column_separator(";").set_null_value("-").build()


def write(sink: FileSink, rows: list[Any]) -> None:
    writer = sink.create_writer(writer_context(), [])
    writer.write(rows, None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])


def test_csv_is_written_and_read_by_a_schema(tmp_path: Path) -> None:
    schema = csv_schema()
    assert schema.size() == len(schema) == 3
    write(FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build(), ROWS)
    assert visible(tmp_path)[0].read_text() == 'a;1;x|y\n"b,c";-;\n'
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    assert source.produced_type() == ROW_TYPE
    assert read_source(source) == ROWS


def test_parquet_is_written_and_read_by_a_row_type(tmp_path: Path) -> None:
    write(FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(ROW_TYPE)).build(), ROWS)
    assert pq.read_table(visible(tmp_path)[0]).num_rows == 2
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(ROW_TYPE), str(tmp_path)).build()
    assert read_source(source) == ROWS


def test_csv_columns_are_matched_by_position_unless_the_header_is_strict(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("h1,h2\na,1\n", encoding="utf-8")
    builder = (
        CsvSchema.builder().add_string_column("name").add_number_column("number", DataTypes.INT()).set_use_header()
    )

    def rows() -> list[Row]:
        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(builder.build()), str(tmp_path))
        return read_source(source.build())

    assert rows() == [Row(name="a", number=1)]
    builder.set_strict_headers()
    with pytest.raises(RecordFormatError, match="h1, h2"):
        rows()


def test_an_error_about_additional_csv_columns_explains_matching_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("other,name,number\nx,a,1\n", encoding="utf-8")
    schema = CsvSchema.builder().add_string_column("name").add_number_column("number").set_use_header().build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    with pytest.raises(RecordFormatError, match=r'got 3.*CsvDialect\(header="names"\)'):
        read_source(source)
    by_name = CsvFormat({"name": str, "number": int}, CsvDialect(header="names"), record="tuple")
    assert read_source(FileSource.for_record_stream_format(by_name, str(tmp_path)).build()) == [("a", 1)]


def test_csv_is_written_like_flink(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_boolean_column("a").add_number_column("b", DataTypes.FLOAT())
    builder.add_number_column("c", DataTypes.DOUBLE()).add_array_column("d", ";", DataTypes.BOOLEAN())
    sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(builder.build())).build()
    write(sink, [Row(True, 3e38, 2e-308, [True, False]), Row(None, 1.5, None, [])])
    assert visible(tmp_path)[0].read_text() == "true,3.0E38,2.0E-308,true;false\n,1.5,,\n"


@pytest.mark.parametrize(("uses_header", "text"), [(True, "a\n1\n"), (False, "1\n")])
def test_csv_is_written_with_a_header_if_the_schema_has_one(tmp_path: Path, uses_header: bool, text: str) -> None:
    schema = CsvSchema.builder().add_number_column("a").set_use_header(uses_header).build()
    write(FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build(), [Row(1)])
    assert visible(tmp_path)[0].read_text() == text


def test_decimals_of_csv_have_the_digits_of_their_type(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1.25,-0.5,123456789012345678901234567890123456789012.5\n,2,1\n", encoding="utf-8")
    builder = CsvSchema.builder().add_number_column("a", DataTypes.DECIMAL(4, 1))
    builder.add_number_column("b", DataTypes.DECIMAL(2, 0)).add_number_column("c", DataTypes.DECIMAL(50, 1))
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(builder.build()), str(tmp_path)).build()
    large = Decimal("123456789012345678901234567890123456789012.5")
    assert [tuple(row) for row in read_source(source)] == [
        (Decimal("1.3"), Decimal("-1"), large),
        (None, Decimal("2"), Decimal("1.0")),
    ]


@pytest.mark.parametrize("text", ["x", "1000"])
def test_a_value_that_is_not_a_decimal_of_the_type_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"{text}\n", encoding="utf-8")
    schema = CsvSchema.builder().add_number_column("a", DataTypes.DECIMAL(3, 0)).build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    with pytest.raises(RecordFormatError):
        read_source(source)


def test_parquet_columns_are_named_by_data_types(tmp_path: Path) -> None:
    row_type = DataTypes.ROW(
        [DataTypes.FIELD("a", DataTypes.STRING()), DataTypes.FIELD("b", DataTypes.ARRAY(DataTypes.BIGINT()))]
    )
    write(
        FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(row_type)).build(), [Row("x", [1, 2])]
    )
    assert pq.read_table(visible(tmp_path)[0]).to_pylist() == [{"a": "x", "b": [1, 2]}]


def test_a_csv_schema_is_changed_step_by_step() -> None:
    builder = CsvSchema.builder().add_columns_from(csv_schema()).add_boolean_column("ok")
    assert builder.size() == 4
    builder.set_array_element_separator(":").set_quote_char("'").set_escape_char("\\").set_use_header()
    dialect = builder.build().dialect
    assert (dialect.quote, dialect.escape, dialect.header) == ("'", "\\", "skip")
    assert dialect.array_separators == {"tags": ":"}
    assert builder.set_strict_headers().build().dialect.header == "strict"
    assert builder.set_skip_first_data_row().disable_quote_char().disable_escape_char().build().dialect.quote is None
    assert builder.disable_array_element_separator().build().dialect.array_separators == {"tags": ""}
    with pytest.raises(InvalidJob):
        builder.clear_columns().build()
    with pytest.raises(InvalidJob):
        builder.set_line_separator("|")
    with pytest.raises(InvalidJob):
        builder.set_column_separator("::")


def test_an_array_without_separator_is_one_element(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_array_column("tags").disable_array_element_separator()
    (tmp_path / "a.csv").write_text("x;y\n")
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(builder.build()), str(tmp_path)).build()
    assert read_source(source) == [Row(tags=["x;y"])]


def test_comments_are_skipped(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("id").set_allow_comments().build()
    (tmp_path / "a.csv").write_text("# one\na\n  # two\nb#\n")
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    assert read_source(source) == [Row(id="a"), Row(id="b#")]


def test_json_messages_become_rows() -> None:
    schema = JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).build()
    schema = pickle.loads(pickle.dumps(schema))
    assert schema.get_produced_type() == ROW_TYPE
    assert schema.deserialize(b'{"id":"a",\n"n":1,"tags":["x"]}') == Row(id="a", n=1, tags=["x"])
    assert schema.deserialize(b"{}") == Row(id=None, n=None, tags=None)
    assert schema.deserialize_batch([b'{"n":1}', b'{"n":2}\n']) == [Row(id=None, n=n, tags=None) for n in (1, 2)]
    for message in (b"", b"[]", b'{"n":"x"}', b"{}{}"):
        with pytest.raises(RecordFormatError, match="malformed JSON message"):
            schema.deserialize(message)
    with pytest.raises(RecordFormatError, match="malformed JSON message"):
        schema.deserialize_batch([b'{"n":1}', b"x"])


def test_missing_fields_and_parse_errors_follow_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    strict = JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).fail_on_missing_field().build()
    with pytest.raises(RecordFormatError, match="no field 'id', 'tags'"):
        strict.deserialize_batch([b'{"n":null}'])
    lenient = JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).ignore_parse_errors().build()
    with caplog.at_level(logging.WARNING):
        assert lenient.deserialize_batch([b"x", b'{"n":1}', b"y"]) == [Row(id=None, n=1, tags=None)]
    assert "ignored 2 malformed JSON messages" in caplog.text
    with pytest.raises(InvalidJob):
        JsonRowDeserializationSchema.builder().type_info(ROW_TYPE).fail_on_missing_field().ignore_parse_errors().build()
    with pytest.raises(InvalidJob):
        JsonRowDeserializationSchema.builder().build()


def test_a_json_schema_defines_the_fields() -> None:
    text = """{"type": "object", "properties": {"id": {"type": "string"}, "inner": {"type": "object", "properties":
        {"ok": {"type": ["null", "boolean"]}}}, "all": {"type": "array", "items": {"type": "number"}}}}"""
    schema = JsonRowDeserializationSchema.builder().json_schema(text).build()
    assert schema.deserialize(b'{"id":"a","inner":{"ok":true},"all":[1]}') == Row(id="a", inner=Row(ok=True), all=[1.0])
    with pytest.raises(InvalidJob, match="not a JSON schema"):
        JsonRowDeserializationSchema.builder().json_schema('{"type": "string"}')


def test_rows_become_json_messages() -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(ROW_TYPE).build()
    assert schema.serialize(("a", 1, ["x"])) == b'{"id":"a","n":1,"tags":["x"]}'
    assert schema.serialize_batch(ROWS)[1] == b'{"id":"b,c","n":null,"tags":[]}'
    with pytest.raises(InvalidJob):
        JsonRowSerializationSchema.builder().build()


def test_csv_messages_become_rows_and_back(caplog: pytest.LogCaptureFixture) -> None:
    build = CsvRowSerializationSchema.Builder(ROW_TYPE).set_field_delimiter(";").set_array_element_delimiter("|")
    serialize = build.set_null_literal("-").set_line_delimiter("").build()
    messages = [serialize.serialize(row) for row in ROWS]
    assert messages == [b"a;1;x|y", b'"b,c";-;']
    builder = CsvRowDeserializationSchema.Builder(ROW_TYPE).set_field_delimiter(";").set_array_element_delimiter("|")
    builder.set_null_literal("-").set_allow_comments(True)
    schema = pickle.loads(pickle.dumps(builder.build()))
    assert schema.deserialize_batch(messages) == ROWS
    assert schema.deserialize(b"# nothing") is None
    with pytest.raises(RecordFormatError, match="malformed CSV message"):
        schema.deserialize(b"a;x;")
    with pytest.raises(RecordFormatError, match="2 lines"):
        schema.deserialize(b"a;1;\nb;2;")
    lenient = builder.set_ignore_parse_errors(True).build()
    with caplog.at_level(logging.WARNING):
        assert lenient.deserialize_batch([b"a;x;", *messages]) == ROWS
    assert "ignored 1 malformed CSV messages" in caplog.text


def test_parquet_with_avro_schemas_is_refused_with_an_alternative() -> None:
    for call in (AvroParquetReaders.for_generic_record, AvroParquetWriters.for_generic_record):
        with pytest.raises(InvalidJob, match="is not supported") as caught:
            call(None)
        assert "needs no Avro schema" in caught.value.remedy


def test_names_are_exported_as_in_pyflink() -> None:
    for name in connectors.__all__:
        assert getattr(connectors, name).__name__ == name
    assert isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    assert isinstance(RollingPolicy.default_rolling_policy(), RollingPolicy)
    with pytest.raises(InvalidJob):
        RollingPolicy.default_rolling_policy(part_size=0)


def test_quotes_are_doubled_even_with_an_escape_character() -> None:
    builder = CsvRowSerializationSchema.Builder(Types.ROW([Types.STRING(), Types.STRING()]))
    schema = builder.set_escape_character("*").set_quote_character("'").set_field_delimiter(";").build()
    assert schema.serialize(Row("123'4*", "a;b'c")) == b"'123''4**';'a;b''c'\n"


@pytest.mark.parametrize(
    ("delimiter", "line"),
    [
        (",", b'text,"a b",12,1.5,true,,"longer than twenty-four characters"\n'),
        ("|", b'"text"|"a b"|12|1.5|true||"longer than twenty-four characters"\n'),
    ],
)
def test_texts_are_quoted_like_flinks(delimiter: str, line: bytes) -> None:
    kinds = [
        Types.STRING(),
        Types.STRING(),
        Types.INT(),
        Types.DOUBLE(),
        Types.BOOLEAN(),
        Types.STRING(),
        Types.STRING(),
    ]
    schema = CsvRowSerializationSchema.Builder(Types.ROW(kinds)).set_field_delimiter(delimiter).build()
    assert schema.serialize(Row("text", "a b", 12, 1.5, True, None, "longer than twenty-four characters")) == line


def test_the_java_class_of_a_column_is_ignored() -> None:
    assert DataTypes.ARRAY(DataTypes.INT()).bridged_to("java.util.ArrayList") == DataTypes.ARRAY(DataTypes.INT())
