"""Delta Lake and Iceberg in the conformance tests: a job from one table to another."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.common.types import Row, RowKind
from penstock.connectors.delta.log import DeltaLog
from penstock.connectors.iceberg.log import IcebergLog
from penstock.connectors.lakehouse.commits import TableCommitter
from tests.integration.connectors.connector import Call, Connector
from tests.integration.lakehouse.lakes import DeltaLake, IcebergLake, Lake, RestLake

COMMITS = {
    "before commit": Call(TableCommitter, "commit", is_before=True),
    "after commit": Call(TableCommitter, "commit"),
}
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string())])


class LakeConnector(Connector):
    """A table in each of two folders."""

    quick_calls: ClassVar[tuple[str, ...]] = ("within commit",)
    refused = "poison"
    lake: ClassVar[type[Lake]]

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._reads = self._lake("reads")
        self._writes = self._lake("writes")

    def _lake(self, name: str) -> Lake:
        return self.lake(self._folder(name))

    def source(self) -> Any:
        return self._reads.source(follow=50)

    def number_of(self, record: Any) -> int:
        return int(record["id"])

    def sink(self) -> Any:
        return self._writes.sink(key=["id"], deletes=True) if self.is_keyed else self._writes.sink()

    def record_of(self, number: Any, text: str) -> Any:
        return Row(number, text) if self.is_keyed else super().record_of(number, text)

    def deletion_of(self, number: int) -> Any:
        found = Row(number, None)
        found.set_row_kind(RowKind.DELETE)
        return found

    def set_up(self) -> None:
        self._reads.make(SCHEMA)
        self._writes.make(SCHEMA)

    def feed(self, numbers: Iterable[int]) -> None:
        self._reads.write(pa.Table.from_pylist([{"id": number, "key": ""} for number in numbers], SCHEMA))

    def rows(self) -> list[tuple[int, str]]:
        return [(row["id"], row["key"]) for row in self._writes.table().to_pylist()]


class DeltaConnector(LakeConnector):
    name = "delta"
    lake = DeltaLake
    calls = {**COMMITS, "within commit": Call(DeltaLog, "append")}


class IcebergConnector(LakeConnector):
    name = "iceberg"
    lake = IcebergLake
    calls = {**COMMITS, "within commit": Call(IcebergLog, "append")}


class DeltaUpsertConnector(DeltaConnector):
    name = "delta-upserts"
    calls = {**COMMITS, "within commit": Call(DeltaLog, "merge")}
    quick_calls = ()
    is_quick = False
    is_keyed = True


class IcebergUpsertConnector(IcebergConnector):
    name = "iceberg-upserts"
    calls = {**COMMITS, "within commit": Call(IcebergLog, "merge")}
    is_quick = False
    is_keyed = True


class RestCatalogConnector(IcebergConnector):
    """An Iceberg table in a REST catalog, written from files. `address` is the catalog's URL.

    The catalog has one SQLite database, which refuses a commit of the test during one of the job.
    """

    name = "iceberg-rest"
    server = "iceberg_catalog"
    marker = "iceberg_rest"
    lake = RestLake
    source = Connector.source
    number_of = Connector.number_of
    feed = Connector.feed

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    def _lake(self, name: str) -> Lake:
        (self._folder(name) / "catalog.uri").write_text(self.address)
        lake = RestLake(self._folder(name))
        lake.name = f"weather.{name}{self.id}"
        return lake
