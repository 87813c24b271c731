"""Support of each type in each format. Other libraries read the files, and the results must match the table in the docs.

Run this file as a program to write the table into the docs.
"""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from penstock.common.errors import PenstockError
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.bulk import CsvWriterFactory, ParquetWriterFactory
from penstock.connectors.formats.csv import CsvDialect, CsvFormat
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.orc import OrcFormat, OrcWriterFactory
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.table.types import DataTypes
from tests.unit.connectors.support import read_source

DOCS = Path(__file__).parents[4] / "docs/connectors/files.md"
BEGIN, END = "<!-- types: begin -->\n", "<!-- types: end -->\n"
UTC = datetime.UTC
AT = datetime.datetime(2020, 2, 29, 23, 59, 59, 123_456)

TYPES: dict[str, tuple[Any, Any, pa.DataType, str]] = {
    "`bool`": (bool, True, pa.bool_(), "BOOLEAN"),
    "`int`": (int, -(2**63), pa.int64(), "BIGINT"),
    "`float`": (float, 0.1, pa.float64(), "DOUBLE"),
    "`float` NaN": (float | None, float("nan"), pa.float64(), "DOUBLE"),
    "`str`": (str, 'é, "x"\ny', pa.string(), "VARCHAR"),
    "`bytes`": (bytes, b"\x00\xff", pa.binary(), "BLOB"),
    "`Decimal`": (Decimal, Decimal("1234567.890000000000000001"), pa.decimal128(38, 18), "DECIMAL(38,18)"),
    "`DataTypes.DECIMAL(38, 0)`": (DataTypes.DECIMAL(38, 0), Decimal(10**37), pa.decimal128(38, 0), "DECIMAL(38,0)"),
    "`Decimal`, file with 30 digits before the point": (Decimal, Decimal(10**29), pa.decimal128(38, 0), ""),
    "`Decimal` NaN": (Decimal | None, Decimal("NaN"), pa.string(), "VARCHAR"),
    "`date`": (datetime.date, AT.date(), pa.date32(), "DATE"),
    "`time`": (datetime.time, AT.time(), pa.time64("us"), "TIME"),
    "`datetime`": (datetime.datetime, AT, pa.timestamp("us"), "TIMESTAMP"),
    "`datetime` with a zone": (datetime.datetime, AT.replace(tzinfo=UTC), pa.timestamp("us", "UTC"), "TIMESTAMPTZ"),
    "`datetime`, nanoseconds in the file": (datetime.datetime, 1_000_000_001, pa.timestamp("ns"), ""),
    "`list[int]`": (list[int], [1, 2], pa.list_(pa.int64()), "BIGINT[]"),
    "`dict[str, int]`": (dict[str, int], {"a": 1}, pa.map_(pa.string(), pa.int64()), "MAP(VARCHAR, BIGINT)"),
    "`int \\| None`": (int | None, None, pa.int64(), "BIGINT"),
    "column that the file lacks, `int \\| None`": (int | None, None, pa.null(), ""),
}


def plain(value: Any) -> Any:
    """Return a value in the form of text-based formats."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def arrow_table(value: Any, kind: pa.DataType) -> pa.Table:
    if pa.types.is_null(kind):
        return pa.table({"other": [1]})
    column = list(value.items()) if isinstance(value, dict) else value
    return pa.table({"other": [1], "v": pa.array([str(column) if pa.types.is_string(kind) else column], kind)})


def parquet_of(path: Path, value: Any, kind: pa.DataType) -> None:
    pq.write_table(arrow_table(value, kind), path)


def orc_of(path: Path, value: Any, kind: pa.DataType) -> None:
    orc.write_table(arrow_table(value, kind), str(path))


def csv_of(path: Path, value: Any, kind: pa.DataType) -> None:
    names, row = ["other", "v"], [1, plain(value)]
    if isinstance(value, list):
        row[1] = ";".join(map(str, value))
    if isinstance(value, bool):
        row[1] = str(value).lower()
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names[:1], row[:1]] if pa.types.is_null(kind) else [names, row])


def json_of(path: Path, value: Any, kind: pa.DataType) -> None:
    record: dict[str, Any] = {"other": 1} if pa.types.is_null(kind) else {"other": 1, "v": plain(value)}
    if isinstance(value, Decimal):
        text = json.dumps({"other": 1, "v": 0}).replace('"v": 0', f'"v": {value}')
        path.write_text(text + "\n")
        return
    path.write_bytes(orjson.dumps(record) + b"\n")


WRITERS: dict[str, Callable[[Path, Any, pa.DataType], None]] = {
    "Parquet": parquet_of,
    "ORC": orc_of,
    "CSV": csv_of,
    "JSON": json_of,
}
READS: dict[str, Callable[[Any], Any]] = {
    "Parquet": lambda fields: FileSource.for_bulk_file_format(ParquetFormat(fields, record="tuple"), "PATH"),
    "ORC": lambda fields: FileSource.for_bulk_file_format(OrcFormat(fields, record="tuple"), "PATH"),
    "CSV": lambda fields: FileSource.for_record_stream_format(
        CsvFormat(fields, CsvDialect(header="names"), record="tuple"), "PATH"
    ),
    "JSON": lambda fields: FileSource.for_record_stream_format(JsonLinesFormat(fields, record="tuple"), "PATH"),
}


def verdict(value: Any, found: Any) -> str:
    if type(found) is type(value) and (found == value or (found != found and value != value)):
        same_zone = getattr(found, "tzinfo", None) is None or getattr(value, "tzinfo", None) is not None
        return "✓" if same_zone else f"{found!r}"
    if found is None:
        return "None"
    return f"as `{type(found).__name__}`"


def read(format: str, name: str, directory: Path) -> str:
    declared, value, kind, _ = TYPES[name]
    path = directory / f"read.{format}"
    try:
        WRITERS[format](path, value, kind)
    except (pa.ArrowException, TypeError):
        return "n/a"
    try:
        source = READS[format]({"other": int, "v": declared})
        source._paths = (str(path),)
        [(_, found)] = read_source(source.build())
    except PenstockError:
        return "refused"
    return verdict(value, found)


def written(format: str, name: str, directory: Path) -> str:
    """Return the values that DuckDB (pyarrow for ORC) reads from a file of Penstock."""
    declared, value, _, sql = TYPES[name]
    if not sql:
        return ""
    path = directory / f"written.{format}"
    fields = {"other": int, "v": declared}
    try:
        content = content_of(format, fields, (1, value))
    except PenstockError:
        return "refused"
    path.write_bytes(content)
    return verdict(value, library_reads(format, path, sql, value))


def content_of(format: str, fields: dict[str, Any], record: tuple[Any, ...]) -> bytes:
    if format == "JSON":
        return JsonLinesEncoder(list(fields)).encode_batch([record])
    factories: dict[str, Any] = {"Parquet": ParquetWriterFactory, "ORC": OrcWriterFactory}
    factory = CsvWriterFactory(fields, CsvDialect(header="names")) if format == "CSV" else factories[format](fields)
    sink = io.BytesIO()
    writer = factory.create(sink)
    writer.add([record])
    writer.finish()
    return sink.getvalue()


def library_reads(format: str, path: Path, sql: str, value: Any) -> Any:
    if format == "ORC":
        return orc.read_table(str(path)).to_pylist(maps_as_pydicts="strict")[0]["v"]
    if format == "JSON":
        found = json.loads(path.read_text(), parse_float=Decimal if isinstance(value, Decimal) else float)["v"]
        return from_text(found, value)
    if format == "CSV":
        with path.open(newline="", encoding="utf-8") as file:
            text = list(csv.reader(file))[1][1]
        return from_text(text, value) if value is not None or text else None
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    [(found,)] = duck.execute(f"SELECT v FROM read_parquet('{path}')").fetchall()
    return found.astimezone(UTC) if isinstance(found, datetime.datetime) and found.tzinfo else found


def from_text(found: Any, value: Any) -> Any:
    """Return the value of a text in the type of `value`."""
    if isinstance(found, int) and isinstance(value, Decimal):
        return Decimal(found)
    if not isinstance(found, str) or isinstance(value, str):
        return found
    if isinstance(value, bool):
        return {"true": True, "True": True}.get(found, found)
    if isinstance(value, bytes):
        try:
            return base64.b64decode(found, validate=True)
        except ValueError:
            return found
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return type(value).fromisoformat(found)
    if isinstance(value, list):
        return [int(part) for part in found.split(";")] if ";" in found else found
    return type(value)(found) if isinstance(value, int | float | Decimal) else found


def measured() -> str:
    """Return the table as Markdown."""
    heads = [f"{format} {way}" for format in WRITERS for way in ("read", "written")]
    lines = [f"| Declared | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    with tempfile.TemporaryDirectory() as directory:
        for name in TYPES:
            cells = [way(format, name, Path(directory)) for format in WRITERS for way in (read, written)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def documented() -> str:
    text = DOCS.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def test_the_table_in_the_docs_matches_the_formats() -> None:
    assert documented() == measured(), f"run: python {Path(__file__).name}, and look whether the change is meant"


@pytest.mark.parametrize("format", ["Parquet", "ORC", "CSV", "JSON"])
def test_no_value_changes_between_writer_and_reader(format: str, tmp_path: Path) -> None:
    """A value is read unchanged, as None if JSON cannot represent it, or refused. The docs describe the exceptions."""
    otherwise = {"`bytes`", "`datetime` with a zone"}
    for name in TYPES:
        for way in (read, written):
            found = way(format, name, tmp_path)
            assert found in ("✓", "refused", "None", "n/a", "") or (name in otherwise and found.startswith("as `"))


if __name__ == "__main__":
    whole = DOCS.read_text()
    begin, end = whole.index(BEGIN) + len(BEGIN), whole.index(END)
    DOCS.write_text(whole[:begin] + measured() + whole[end:])
    sys.stdout.write(measured())
