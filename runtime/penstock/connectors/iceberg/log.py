"""An Iceberg table as its committer needs it: files, or changed rows, a summary and a property in one commit."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.iceberg.merge import merge
from penstock.connectors.iceberg.table import exists, open_catalog, open_table, package, schema_of
from penstock.connectors.iceberg.target import data_file
from penstock.connectors.lakehouse.commits import TableLog

if TYPE_CHECKING:
    from penstock.connectors.iceberg.sink import IcebergSink
    from penstock.connectors.lakehouse.upserts import Changes

logger = logging.getLogger(__name__)

APP, CHECKPOINT, DIGEST = "penstock-app", "penstock-checkpoint", "penstock-files"


class IcebergLog(TableLog):
    def __init__(self, sink: IcebergSink, options: StorageOptions) -> None:
        self.name = sink.table
        self._sink = sink
        self._options = options
        self._catalog: Any = None
        self._table: Any = None

    def prepare(self) -> None:
        """Make the table, or add columns to it, where the sink says so."""
        sink = self._sink
        if sink.create and not exists(sink.catalog, sink.table, self._options):
            self._create()
        if sink.add_columns:
            self._add_columns()

    def _create(self) -> None:
        sink = self._sink
        catalog = open_catalog(sink.catalog, self._options, SinkError)
        transforms = package("pyiceberg.transforms")
        try:
            catalog.create_namespace_if_not_exists(sink.table.rpartition(".")[0])
            with (
                catalog.create_table_transaction(sink.table, sink.iceberg_schema()) as making,
                making.update_spec() as spec,
            ):
                for name in sink.partition_by:
                    spec.add_field(name, transforms.IdentityTransform(), name)
        except Exception as error:
            if type(error).__name__ == "TableAlreadyExistsError":
                return
            raise SinkError(
                f"Iceberg table {sink.table!r} cannot be made: {type(error).__name__}: {str(error)[:1000]}",
                remedy="check that the warehouse answers (s3.endpoint, keys) and may be written to, give the right to make tables in this namespace, or make the table by hand",
            ) from error

    def _add_columns(self) -> None:
        for last in (False, True):
            table = open_table(self._sink.catalog, self.name, self._options, SinkError)
            new = self._sink.fit_to(table, adds_columns=True).new
            if not new:
                return
            try:
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(list(new)))
                logger.info("columns %s are added to table %r", ", ".join(field.name for field in new), self.name)
            except Exception as error:
                if last:
                    raise SinkError(
                        f"columns {', '.join(field.name for field in new)} cannot be added to {self.name!r}: {error}",
                        remedy="add them by hand, or stop whoever changes the table at the same time",
                    ) from error

    def look(self) -> None:
        if self._catalog is None:
            self._catalog = open_catalog(self._sink.catalog, self._options, SinkError)
        self._table = open_table(self._sink.catalog, self.name, self._options, SinkError, self._catalog)
        self._sink.fit_to(self._table)

    def last_checkpoint(self, app: str) -> int | None:
        """By the table's property, and by snapshots: somebody may have set properties back."""
        noted = self._table.properties.get(property_of(app))
        told = [_note(snapshot, app) for snapshot in self._table.metadata.snapshots]
        found = [note[0] for note in told if note is not None]
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
                remedy="set the table's partition spec back until the job has committed, then change it while the job is stopped",
            )
        self._commit(app, checkpoint, digest, [], files)

    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        table = self._table
        if int(self._totals().get("total-equality-deletes", 0)):
            raise SinkError(
                f"Iceberg table {self.name!r} has equality deletes, which a sink with a key does not read",
                remedy="rewrite its files (rewrite_data_files), and let other writers copy on write",
            )
        found = merge(table, changes, changes.columns_in(schema_of(table), self.name), f"part-{checkpoint}-{digest}")
        try:
            self._commit(app, checkpoint, digest, found.removed, found.added)
        except Exception as error:
            if type(error).__name__ == "CommitFailedException" and not self._happened(app, checkpoint):
                for file in found.added:  # another writer was faster: it did not happen, and never will
                    self.remove(file["path"])
            raise

    def _happened(self, app: str, checkpoint: int) -> bool:
        """What is asked for twice, by a proxy that had no answer, is refused by what it did the first time."""
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
        told = self._totals()
        return int(told.get("total-data-files", 0)), int(told.get("total-files-size", 0))

    def _totals(self) -> dict[str, str]:
        """What the newest snapshot says of the whole table."""
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
        engine = getattr(self._catalog, "engine", None)
        if engine is not None:
            engine.dispose()


def _note(snapshot: Any, app: str) -> tuple[int, str] | None:
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return (int(summary[CHECKPOINT]), summary[DIGEST]) if summary.get(APP) == app else None


def _never_rebased(table: Any) -> None:
    """pyiceberg would put a commit that was overtaken on top of the other one, and that may be this very checkpoint's, by a
    successor. Only the copy of the table's properties that is at hand is changed."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


def property_of(app: str) -> str:
    """The property of a table that holds an app's last checkpoint."""
    return f"penstock-committed-{hashlib.blake2b(app.encode(), digest_size=8).hexdigest()}"
