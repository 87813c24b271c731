"""An Iceberg table for its committer: one commit contains files or changed rows, a summary and a property."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.iceberg.merge import merge
from penstock.connectors.iceberg.table import close_catalog, open_catalog, open_table, package, schema_of
from penstock.connectors.iceberg.target import data_file
from penstock.connectors.lakehouse.log import LakehouseLog

if TYPE_CHECKING:
    from penstock.connectors.iceberg.settings import IcebergSinkSettings
    from penstock.connectors.lakehouse.upserts import Changes

APP, CHECKPOINT, DIGEST = "penstock-app", "penstock-checkpoint", "penstock-files"


class IcebergLog(LakehouseLog):
    _sink: IcebergSinkSettings

    def __init__(self, sink: IcebergSinkSettings, options: StorageOptions) -> None:
        super().__init__(sink, options)
        self._catalog: Any = None

    def _create(self) -> None:
        sink = self._sink
        catalog = open_catalog(sink.catalog, self._options, SinkError)
        transforms = package("pyiceberg.transforms")
        try:
            catalog.create_namespace_if_not_exists(sink.table.rpartition(".")[0])
            with (
                catalog.create_table_transaction(sink.table, sink.new_schema()) as making,
                making.update_spec() as spec,
            ):
                for name in sink.partition_by:
                    spec.add_field(name, transforms.IdentityTransform(), name)
        except Exception as error:
            if type(error).__name__ == "TableAlreadyExistsError":
                return
            raise SinkError(
                f"Iceberg table {sink.table!r} cannot be created: {type(error).__name__}: {str(error)[:1000]}",
                remedy="check that the warehouse is reachable and writable (s3.endpoint, keys), and that you may create tables in this "
                "namespace. Or create the table manually",
            ) from error

    def _add(self, table: Any, columns: pa.Schema) -> None:
        with table.update_schema() as update:
            update.union_by_name(columns)

    def look(self) -> None:
        if self._catalog is None:
            self._catalog = open_catalog(self._sink.catalog, self._options, SinkError)
        self._table = open_table(self._sink.catalog, self.name, self._options, SinkError, self._catalog)
        self._sink.fit_to(self._table)

    def last_checkpoint(self, app: str) -> int | None:
        """Return the newest checkpoint in the table's property and in its snapshots. Another process may have reset the property."""
        noted = self._table.properties.get(property_of(app))
        notes = [_note(snapshot, app) for snapshot in self._table.metadata.snapshots]
        found = [note[0] for note in notes if note is not None]
        return max([*found, *([] if noted is None else [int(noted)])], default=None)

    def notes(self, app: str) -> dict[int, str]:
        found, snapshot = {}, self._table.current_snapshot()
        while snapshot is not None:
            note = _note(snapshot, app)
            if note is not None:
                found[note[0]] = note[1]
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return found

    def append(self, app: str, checkpoint: int, digest: str, files: list[dict[str, Any]]) -> None:
        table = self._table
        strange = {file["spec"] for file in files} - {table.spec().spec_id}
        if strange:
            raise SinkError(
                f"the partitioning of table {self.name!r} has changed since rows of checkpoint {checkpoint} were written",
                remedy="restore the table's partition spec until the job has committed, then change it while the job is stopped",
            )
        self._commit(app, checkpoint, digest, [], files)

    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        table = self._table
        if int(self._totals().get("total-equality-deletes", 0)):
            raise SinkError(
                f"Iceberg table {self.name!r} has equality deletes, which a sink with a key does not read",
                remedy="rewrite its files (rewrite_data_files), and set other writers to copy on write",
            )
        found = merge(table, changes, changes.columns_in(schema_of(table), self.name), f"part-{checkpoint}-{digest}")
        try:
            self._commit(app, checkpoint, digest, found.removed, found.added)
        except Exception as error:
            if type(error).__name__ == "CommitFailedException" and not self._happened(app, checkpoint):
                for file in found.added:  # another writer was faster: this commit did not happen and never will
                    self.remove(file["path"])
            raise

    def _happened(self, app: str, checkpoint: int) -> bool:
        """Return whether a refused commit has succeeded. This happens if a proxy repeats a request that got no answer: the table refuses the
        repetition."""
        self.look()
        newest = self.last_checkpoint(app)
        return newest is not None and newest >= checkpoint

    def _commit(self, app: str, checkpoint: int, digest: str, removed: list[Any], added: list[dict[str, Any]]) -> None:
        noted = {APP: app, CHECKPOINT: str(checkpoint), DIGEST: digest}
        _never_rebased(self._table)
        with self._table.transaction() as transaction:
            transaction.set_properties({property_of(app): str(checkpoint)})
            snapshot = transaction.update_snapshot(snapshot_properties=noted)
            with snapshot.overwrite() if removed else snapshot.fast_append() as update:
                for file in removed:
                    update.delete_data_file(file)
                for about in added:
                    update.append_data_file(data_file(about))

    def size(self) -> tuple[int, int]:
        totals = self._totals()
        return int(totals.get("total-data-files", 0)), int(totals.get("total-files-size", 0))

    def _totals(self) -> dict[str, str]:
        """Return the newest snapshot's totals for the whole table."""
        snapshot = self._table.current_snapshot()
        return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties

    def has(self, path: str) -> bool:
        return bool(self._table.io.new_input(path).exists())

    def remove(self, path: str) -> None:
        try:
            self._table.io.delete(path)
        except FileNotFoundError:
            return

    def close(self) -> None:
        close_catalog(self._catalog)


def _note(snapshot: Any, app: str) -> tuple[int, str] | None:
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return (int(summary[CHECKPOINT]), summary[DIGEST]) if summary.get(APP) == app else None


def _never_rebased(table: Any) -> None:
    """Disable retries inside pyiceberg. A retry would rebase the commit on a newer commit, which a successor may have made for the same
    checkpoint. The function changes only the local copy of the table's properties."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


def property_of(app: str) -> str:
    """Return the property of a table that holds an app's last checkpoint."""
    return f"penstock-committed-{hashlib.blake2b(app.encode(), digest_size=8).hexdigest()}"
