"""Contents of the file sink's files: Parquet, CSV and JSON lines, from rows in any form and from columns."""

from __future__ import annotations

import gc
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.bulk import CsvWriterFactory, ParquetWriterFactory
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CsvEncoder, JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_tuples
from tests.unit.connectors.support import read_source, snapshot, visible, writer_context


def test_columns_are_written_without_rows(tmp_path: Path) -> None:
    def no_rows(columns: pa.RecordBatch) -> list[Any]:
        raise AssertionError("rows were made")

    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"id": str, "n": int})).build()
    writer = sink.create_writer(writer_context(), [])
    columns = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "id": ["a", "b"]})
    writer.write_batch(ColumnBatch(columns, None, no_rows), 0)
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    (path,) = visible(tmp_path)
    assert path.suffix == ".parquet"
    assert pq.read_table(path).to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


class Reading(NamedTuple):
    id: str
    n: int


@pytest.mark.parametrize(
    "values",
    [
        [("a", 1), ("b", None)],
        [Row("a", 1), Row("b", None)],
        [{"id": "a", "n": 1}, {"id": "b"}],
        [SimpleNamespace(id="a", n=1), SimpleNamespace(id="b", n=None)],
        [["a", 1], ["b", None]],
    ],
)
def test_parquet_and_csv_accept_rows_of_any_form(tmp_path: Path, values: list[Any]) -> None:
    for name, factory in (
        ("parquet", ParquetWriterFactory({"id": str, "n": int | None})),
        ("csv", CsvWriterFactory({"id": str, "n": int | None}, CsvDialect(header="names"))),
    ):
        sink = FileSink.for_bulk_format(str(tmp_path / name), factory).build()
        writer = sink.create_writer(writer_context(), [])
        writer.write(values, None, 0)
        sink.create_committer({}).commit(snapshot(writer, 1)[0])
        (path,) = visible(tmp_path / name)
        found = duckdb.sql(f"select id, n from '{path}' order by id").fetchall()
        assert found == [("a", 1), ("b", None)]


def test_a_value_that_does_not_fit_its_field_is_named(tmp_path: Path) -> None:
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"id": str, "n": int})).build()
    writer = sink.create_writer(writer_context(), [])
    with pytest.raises(RecordFormatError, match="'n' cannot be written as int64"):
        writer.write([("a", "many")], None, 0)
    with pytest.raises(RecordFormatError, match="it has 3 fields, declared are 2: id, n"):
        writer.write([("a", 1, 2)], None, 0)


@pytest.mark.parametrize(("compression", "suffix"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_compressed_parts_can_be_continued_and_read(tmp_path: Path, compression: str, suffix: str) -> None:
    sink = FileSink.for_row_format(str(tmp_path), JsonLinesEncoder()).with_compression(compression).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([{"n": 1}], None, 0)
    _, state = snapshot(writer, 1)
    writer.write([{"n": 99}], None, 0)
    writer = sink.create_writer(writer_context(), state)
    writer.write([{"n": 2}], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 2)[0])
    (path,) = visible(tmp_path)
    assert path.name.endswith(f".jsonl{suffix}")
    source = FileSource.for_record_stream_format(JsonLinesFormat({"n": int}, record="tuple"), str(tmp_path)).build()
    assert read_source(source) == [(1,), (2,)]


def test_every_part_begins_with_the_csv_header(tmp_path: Path) -> None:
    encoder = CsvEncoder(["id", "n"], CsvDialect(header="names"))
    builder = FileSink.for_row_format(str(tmp_path), encoder)
    sink = builder.with_rolling_policy(RollingPolicy(12)).with_compression("gzip").build()
    writer = sink.create_writer(writer_context(), [])
    for n in range(3):
        writer.write([("a", n)], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    assert [gzip.decompress(path.read_bytes()) for path in visible(tmp_path)] == [b"id,n\na,%d\n" % n for n in range(3)]


def test_every_kind_of_record_is_written_as_json_lines(tmp_path: Path) -> None:
    encoder = JsonLinesEncoder()
    assert encoder.encode_batch([Reading("a", 1)]) == b'{"id":"a","n":1}\n'
    assert encoder.encode_batch([Row(id="a", inner=Row(1, 2))]) == b'{"id":"a","inner":[1,2]}\n'
    assert encoder.encode_batch([("a", 1)]) == b'["a",1]\n'
    assert JsonLinesEncoder(["id", "n"]).encode_batch([Row("a", 1)]) == b'{"id":"a","n":1}\n'
    assert encoder.encode_batch([]) == b""
    with pytest.raises(RecordFormatError, match="cannot be written as JSON"):
        encoder.encode_batch([object()])
    assert json.loads(encoder.encode(pa.scalar(1).as_py())) == 1


def test_csv_needs_field_names_for_objects_and_joins_lists() -> None:
    with pytest.raises(InvalidJob, match="without the names of its fields"):
        CsvEncoder().encode_batch([{"id": "a"}])
    encoder = CsvEncoder(["id", "tags"], CsvDialect(array_separators={"tags": "|"}, null_value="-"))
    assert encoder.encode_batch([{"id": None, "tags": [1, 2]}]) == b"-,1|2\n"


def test_rows_of_a_column_batch_are_written_by_row_formats(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), JsonLinesEncoder(["n"])).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write_batch(ColumnBatch(pa.record_batch({"n": [1, 2]}), None, rows_as_tuples), 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    assert visible(tmp_path)[0].read_text() == '{"n":1}\n{"n":2}\n'


def test_an_abandoned_parquet_part_causes_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrow must not write a footer into the deleted part when the writer is garbage-collected."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"n": int}, row_group_rows=10)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([(n,) for n in range(25)], None, 0)
    writer.close()
    del writer
    gc.collect()
    assert ignored == []
    assert capfd.readouterr().err == ""
    assert visible(tmp_path) == []
