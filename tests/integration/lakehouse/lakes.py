"""A table of each format, as the sink writes it and as other programs see it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from penstock.connectors.core.sink import SinkWriter, WriterContext
from penstock.connectors.lakehouse.commits import TableCommitter
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.datastream.connectors.iceberg import IcebergSink, IcebergSource
from tools.servers.base.process import free_port
from tools.servers.iceberg_catalog import IcebergCatalog

FIELDS = {"id": int, "key": str}


class Lake(ABC):
    """A table in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def sink(self, fields: Any = FIELDS, **options: Any) -> Any: ...

    @abstractmethod
    def source(self, fields: Any = None, **options: Any) -> Any: ...

    @abstractmethod
    def table(self) -> pa.Table:
        """Return all rows, read by the format's own library."""

    @abstractmethod
    def commits(self) -> int:
        """Return the number of commits that added files."""

    @abstractmethod
    def named_files(self) -> list[str]:
        """Return the local paths of the table's files."""

    @abstractmethod
    def write(self, rows: pa.Table, mode: str = "append") -> None:
        """Write rows as another writer, with the format's own library."""

    @abstractmethod
    def make(self, schema: pa.Schema, partition_by: list[str] | None = None) -> None:
        """Create an empty table as another program."""

    @abstractmethod
    def delete(self, predicate: str) -> None: ...

    @abstractmethod
    def forget_history(self) -> None:
        """Remove the notes of single commits, as maintenance of an old table does."""

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table().to_pylist(), key=lambda row: json.dumps(row, default=str, sort_keys=True))

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.table().to_pylist())

    def by_duckdb(self, question: str) -> list[Any]:
        """Return DuckDB's answer to a query of `files`, the Parquet files of the table."""
        with duckdb.connect() as connection:
            return connection.sql(question.replace("files", f"read_parquet({self.named_files()})")).fetchall()

    def data_files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.parquet"))


class DeltaLake(Lake):
    @property
    def path(self) -> str:
        return str(self.folder / "table")

    def sink(self, fields: Any = FIELDS, **options: Any) -> DeltaSink:
        return DeltaSink(self.path, fields, **{"create": True, **options})

    def source(self, fields: Any = None, **options: Any) -> DeltaSource:
        return DeltaSource(self.path, fields, **options)

    def opened(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.path)

    def table(self) -> pa.Table:
        return self.opened().to_pyarrow_table()

    def commits(self) -> int:
        return sum("penstock-checkpoint" in commit for commit in self.opened().history())

    def named_files(self) -> list[str]:
        return list(self.opened().file_uris())

    def write(self, rows: pa.Table, mode: str = "append") -> None:
        deltalake.write_deltalake(self.path, rows, mode=mode)

    def make(self, schema: pa.Schema, partition_by: list[str] | None = None) -> None:
        deltalake.DeltaTable.create(self.path, deltalake.Schema.from_arrow(schema), partition_by=partition_by)

    def delete(self, predicate: str) -> None:
        self.opened().delete(predicate)

    def forget_history(self) -> None:
        table = self.opened()
        table.create_checkpoint()
        for log in sorted((self.folder / "table" / "_delta_log").glob("*.json"))[:-1]:
            log.unlink()


class IcebergLake(Lake):
    name = "weather.readings"

    @property
    def properties(self) -> dict[str, str]:
        return {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def sink(self, fields: Any = FIELDS, **options: Any) -> IcebergSink:
        return IcebergSink(self.properties, self.name, fields, **{"create": True, **options})

    def source(self, fields: Any = None, **options: Any) -> IcebergSource:
        return IcebergSource(self.properties, self.name, fields, **options)

    def catalog(self) -> Any:
        return load_catalog(**self.properties)

    def opened(self) -> Any:
        return self.catalog().load_table(self.name)

    def table(self) -> pa.Table:
        return self.opened().scan().to_arrow()

    def commits(self) -> int:
        snapshots = self.opened().metadata.snapshots
        return sum("penstock-checkpoint" in snapshot.summary.additional_properties for snapshot in snapshots)

    def named_files(self) -> list[str]:
        return [task.file.file_path.removeprefix("file://") for task in self.opened().scan().plan_files()]

    def write(self, rows: pa.Table, mode: str = "append") -> None:
        table = self.opened()
        (table.append if mode == "append" else table.overwrite)(rows)

    def make(self, schema: pa.Schema, partition_by: list[str] | None = None) -> None:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("weather")
        table = catalog.create_table(self.name, schema)
        with table.update_spec() as spec:
            for name in partition_by or ():
                spec.add_identity(name)

    def delete(self, predicate: str) -> None:
        self.opened().delete(predicate)

    def forget_history(self) -> None:
        table = self.opened()
        old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1]]
        table.maintenance.expire_snapshots().by_ids(old).commit()


class RestLake(IcebergLake):
    """A table whose catalog is a server; see `catalog_of`."""

    @property
    def properties(self) -> dict[str, str]:
        return {"name": "lake", "type": "rest", "uri": (self.folder / "catalog.uri").read_text()}


def catalog_of(lake: RestLake) -> IcebergCatalog:
    """Return the table's catalog server, which the caller starts."""
    server = IcebergCatalog(lake.folder / "catalog", lake.folder / "warehouse")
    server.port = free_port()
    (lake.folder / "catalog.uri").write_text(server.url)
    return server


LAKES: dict[str, Callable[[Path], Lake]] = {"delta": DeltaLake, "iceberg": IcebergLake, "rest": RestLake}
IN_PROCESS = ("delta", "iceberg")
"""Formats that need no server."""


def writer_of(sink: Any, subtask: int = 0, job: str = "job", attempt: int = 1) -> SinkWriter:
    return sink.create_writer(WriterContext(subtask, 2, attempt, "sink", job), [])


def committer_of(sink: Any, job: str = "job") -> TableCommitter:
    return sink.create_committer({}, job_id=job, uid="sink")


def voted(writer: SinkWriter, checkpoint: int, *ids: int) -> list[Any]:
    """Write rows with these ids. Return the writer's committables after a round trip through JSON."""
    writer.write([{"id": n, "key": f"k{n % 3}"} for n in ids], None, 0)
    return json.loads(json.dumps(writer.prepare_commit(checkpoint)))
