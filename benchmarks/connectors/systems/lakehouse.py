"""Delta Lake and Iceberg: tables on a disk, with Iceberg's catalog in SQLite. No server; deltalake and PyIceberg without Penstock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed, timed
from benchmarks.connectors.records import BATCH, FIELDS, SCHEMA, expect, parts, rows
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.datastream.connectors.iceberg import IcebergSink, IcebergSource

PER_COMMIT = 100_000


@contextmanager
def lakehouse(folder: Path) -> Iterator[list[Case]]:
    delta, iceberg = _Delta(folder), _Iceberg(folder)
    lakes = ((delta, "to_pyarrow_dataset", "write_deltalake"), (iceberg, "scan().to_arrow", "append"))
    yield [
        case
        for lake, reads, writes in lakes
        for case in (
            Case(f"{lake.name}.source", partial(_read, lake), partial(_bare_read, lake), f"{reads}, rows by to_pylist"),
            Case(
                f"{lake.name}.sink",
                partial(_write, lake),
                partial(_bare_write, lake),
                f"{writes} of an Arrow table of {PER_COMMIT:,} rows",
            ),
        )
    ]


class _Delta:
    name = "delta"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.filled: dict[int, str] = {}

    def new(self) -> str:
        return str(self._folder / f"delta-{next(self._numbers)}")

    def sink(self, table: str) -> Any:
        return DeltaSink(table, FIELDS, create=True)

    def source(self, table: str) -> Any:
        return DeltaSource(table, FIELDS)

    def append(self, table: str, values: pa.Table) -> None:
        deltalake.write_deltalake(table, values, mode="append")

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        return iter(deltalake.DeltaTable(table).to_pyarrow_dataset().to_batches(batch_size=BATCH))


class _Iceberg:
    name = "iceberg"

    def __init__(self, folder: Path) -> None:
        catalog, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
        self._properties = {"name": "lake", "type": "sql", "uri": catalog, "warehouse": warehouse}
        self._numbers = itertools.count()
        self._catalog = load_catalog(**self._properties)
        self._catalog.create_namespace("weather")
        self.filled: dict[int, str] = {}

    def new(self) -> str:
        return f"weather.readings_{next(self._numbers)}"

    def sink(self, table: str) -> Any:
        return IcebergSink(self._properties, table, FIELDS, create=True)

    def source(self, table: str) -> Any:
        return IcebergSource(self._properties, table, FIELDS)

    def append(self, table: str, values: pa.Table) -> None:
        self._catalog.create_table_if_not_exists(table, SCHEMA).append(values)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        return iter(self._catalog.load_table(table).scan().to_arrow().to_batches(BATCH))


def _filled(lake: _Delta | _Iceberg, count: int) -> str:
    """Return a table of this many readings."""
    if count not in lake.filled:
        lake.filled[count] = lake.new()
        _append(lake, lake.filled[count], count)
    return lake.filled[count]


def _append(lake: _Delta | _Iceberg, table: str, count: int) -> None:
    for part in parts(rows(count), PER_COMMIT):
        lake.append(table, pa.Table.from_pylist(part, SCHEMA))


def _read(lake: _Delta | _Iceberg, count: int) -> Cost:
    return job.read(lake.source(_filled(lake, count)), count)


def _bare_read(lake: _Delta | _Iceberg, count: int) -> Cost:
    table = _filled(lake, count)
    return consumed(count, (batch.to_pylist() for batch in _batches(lake, table)))


def _batches(lake: _Delta | _Iceberg, table: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches. The first request opens the table."""
    yield from lake.batches(table)


def _write(lake: _Delta | _Iceberg, count: int) -> Cost:
    table = lake.new()
    cost = job.write(lake.sink(table), count)
    expect(sum(map(len, lake.batches(table))), count, "rows written")
    return cost


def _bare_write(lake: _Delta | _Iceberg, count: int) -> Cost:
    table = lake.new()
    cost = timed(count, partial(_append, lake, table, count))
    expect(sum(map(len, lake.batches(table))), count, "rows written")
    return cost
