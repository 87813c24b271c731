"""Files on a disk. This case needs no server. The bare client is pyarrow, or msgspec with an open file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import BATCH, FIELDS, SCHEMA, decode, expect, messages, parts, rows
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.csv import CsvFormat
from penstock.datastream.formats.json import JsonLinesEncoder, JsonLinesFormat
from penstock.datastream.formats.parquet import ParquetFormat, ParquetWriterFactory


@contextmanager
def files(folder: Path) -> Iterator[list[Case]]:
    inputs = _Inputs(folder)
    lines = FileSource.for_record_stream_format
    yield [
        Case(
            "files.json-read",
            lambda count: job.read(lines(JsonLinesFormat(FIELDS), inputs.path("jsonl", count)).build(), count),
            lambda count: consumed(count, _json_rows(inputs.path("jsonl", count))),
            "a loop over the lines with msgspec",
        ),
        Case(
            "files.json-columns",
            _columns(lambda count: lines(JsonLinesFormat(FIELDS), inputs.path("jsonl", count)).build()),
            lambda count: timed(count, lambda: pyarrow.json.read_json(inputs.path("jsonl", count))),
            "pyarrow.json.read_json",
        ),
        Case(
            "files.csv-columns",
            _columns(lambda count: lines(CsvFormat(FIELDS), inputs.path("csv", count)).build()),
            lambda count: timed(count, lambda: _csv(inputs.path("csv", count))),
            "pyarrow.csv.read_csv",
        ),
        Case(
            "files.parquet-read",
            lambda count: job.read(_parquet(inputs, count), count),
            lambda count: consumed(count, _parquet_rows(inputs.path("parquet", count))),
            "pyarrow's iter_batches and to_pylist",
        ),
        Case(
            "files.parquet-columns",
            _columns(lambda count: _parquet(inputs, count)),
            lambda count: timed(count, lambda: pq.read_table(inputs.path("parquet", count))),
            "pyarrow's read_table",
        ),
        Case(
            "files.json-write",
            lambda count: _written(folder, count, FileSink.for_row_format, JsonLinesEncoder()),
            lambda count: timed(count, lambda: _write_lines(folder / "bare.jsonl", count)),
            "msgspec's encode_lines by 10,000, write, fsync",
        ),
        Case(
            "files.parquet-write",
            lambda count: _written(folder, count, FileSink.for_bulk_format, ParquetWriterFactory(FIELDS)),
            lambda count: timed(count, lambda: _write_parquet(folder / "bare.parquet", count)),
            "pyarrow's ParquetWriter by 10,000, fsync",
        ),
    ]


class _Inputs:
    """Files with a number of readings, created at their first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, kind: str, count: int) -> str:
        path = self._folder / f"{count}.{kind}"
        if not path.exists():
            table = pa.Table.from_pylist(rows(count), SCHEMA)
            if kind == "jsonl":
                path.write_bytes(b"\n".join(messages(count)) + b"\n")
            elif kind == "csv":
                pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(include_header=False))
            else:
                pq.write_table(table, path, row_group_size=100_000)
        return str(path)


def _columns(source: Callable[[int], Any]) -> Callable[[int], Cost]:
    return lambda count: job.read(source(count), count, form="columns")


def _csv(path: str) -> pa.Table:
    return pyarrow.csv.read_csv(path, pyarrow.csv.ReadOptions(column_names=SCHEMA.names))


def _parquet(inputs: _Inputs, count: int) -> Any:
    return FileSource.for_bulk_file_format(ParquetFormat(FIELDS), inputs.path("parquet", count)).build()


def _json_rows(path: str) -> Iterator[list[Any]]:
    with open(path, "rb") as file:
        while values := [decode(line) for line in islice(file, BATCH)]:
            yield values


def _parquet_rows(path: str) -> Iterator[list[Any]]:
    for batch in pq.ParquetFile(path).iter_batches(BATCH):
        yield batch.to_pylist()


def _written(folder: Path, count: int, builder: Any, format: Any) -> Cost:
    path = folder / "written"
    cost = job.write(builder(str(path), format).build(), count)
    found = [file for file in path.rglob("part-*") if file.is_file()]
    if isinstance(format, JsonLinesEncoder):
        expect(sum(file.read_bytes().count(b"\n") for file in found), count, "lines written")
    else:
        expect(sum(pq.read_metadata(file).num_rows for file in found), count, "rows written")
    shutil.rmtree(path)
    return cost


def _write_lines(path: Path, count: int) -> None:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for part in parts(rows(count)):
            file.write(encoder.encode_lines(part))
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(path: Path, count: int) -> None:
    with path.open("wb") as file:
        with pq.ParquetWriter(file, SCHEMA) as writer:
            for part in parts(rows(count)):
                writer.write_table(pa.Table.from_pylist(part, SCHEMA))
        os.fsync(file.fileno())
