"""A Delta table for its committer: one commit contains files or changed rows, and a `txn` action."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import SinkError
from penstock.connectors.delta.table import create, package, schema_of, unreachable
from penstock.connectors.delta.target import has_file, remover
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.lakehouse.log import LakehouseLog
from penstock.connectors.tables.row_writers import GONE

if TYPE_CHECKING:
    from penstock.connectors.delta.settings import DeltaSinkSettings
    from penstock.connectors.lakehouse.upserts import Changes

_APP, _CHECKPOINT, _DIGEST = "penstock-app", "penstock-checkpoint", "penstock-files"
_HISTORY = 1000
"""Maximum number of commits that are searched for the notes of an app (see `lakehouse.commits`)."""


class DeltaLog(LakehouseLog):
    _sink: DeltaSinkSettings

    def __init__(self, sink: DeltaSinkSettings, options: StorageOptions) -> None:
        super().__init__(sink, options)
        self._remove = remover(sink.path, options)

    def _create(self) -> None:
        sink = self._sink
        try:
            create(sink.path, sink.new_schema(), sink.partition_by, sink.delta_options(self._options))
        except Exception as error:
            raise unreachable(sink.path, error, SinkError) from error

    def _add(self, table: Any, columns: pa.Schema) -> None:
        table.alter.add_columns(list(package().Schema.from_arrow(columns).fields))

    def look(self) -> None:
        if self._table is None:
            self._table = self._sink.open_table(self._options)
        else:
            self._table.update_incremental()
        self._sink.fit_to(self._table)

    def last_checkpoint(self, app: str) -> int | None:
        version = self._table.transaction_version(app)
        return None if version is None else int(version)

    def notes(self, app: str) -> dict[int, str]:
        commits = [commit for commit in self._table.history(_HISTORY) if commit.get(_APP) == app]
        return {int(commit[_CHECKPOINT]): str(commit[_DIGEST]) for commit in commits}

    def append(self, app: str, checkpoint: int, digest: str, files: list[dict[str, Any]]) -> None:
        delta = package("deltalake.transaction")
        adds = [
            delta.AddAction(
                path=file["path"],
                size=file["size"],
                partition_values=file["partition"],
                modification_time=file["modified"],
                data_change=True,
                stats=json.dumps(file["stats"]),
            )
            for file in files
        ]
        with self._reloaded_after_errors():
            self._table.create_write_transaction(
                adds,
                "append",
                self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=_note(app, checkpoint, digest),
            )

    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        """Merge with delta-rs, which finds and rewrites the files.

        If no row changes, delta-rs makes no commit. A separate commit then adds the note.
        """
        table, schema = self._table, changes.columns_in(schema_of(self._table), self.name)
        if pa.table(table.deletion_vectors()).num_rows:
            raise SinkError(
                f"Delta table {self.name!r} has deletion vectors, which a sink with a key does not read",
                remedy="rewrite its files (REORG TABLE … APPLY (PURGE)), and set delta.enableDeletionVectors=false",
            )
        taken = {_sql(name): f"s.{_sql(name)}" for name in schema.names}
        changed = {column: value for column, value in taken.items() if column not in map(_sql, changes.key)}
        merger = table.merge(
            changes.as_columns(schema),
            " and ".join(f"t.{_sql(name)} = s.{_sql(name)}" for name in changes.key),
            "s",
            "t",
            streamed_exec=False,  # so that delta-rs skips files by their key bounds
            commit_properties=_note(app, checkpoint, digest, max_commit_retries=0),
        ).when_matched_delete(f"s.{_sql(GONE)}")
        if changed:
            merger = merger.when_matched_update(changed)
        merger = merger.when_not_matched_insert(taken, predicate=f"not s.{_sql(GONE)}")
        with self._reloaded_after_errors():
            merger.execute()
        if self.last_checkpoint(app) != checkpoint:
            self.append(app, checkpoint, digest, [])

    @contextmanager
    def _reloaded_after_errors(self) -> Iterator[None]:
        """Drop the loaded table if the block fails, so that the next `look` loads the table again."""
        try:
            yield
        except BaseException:
            self._table = None
            raise

    def size(self) -> tuple[int, int]:
        sizes = pa.table(self._table.get_add_actions(flatten=True)).column("size_bytes")
        return len(sizes), pc.sum(sizes).as_py() or 0

    def has(self, path: str) -> bool:
        return has_file(self.name, path, self._options)

    def remove(self, path: str) -> None:
        self._remove(path)


def _note(app: str, checkpoint: int, digest: str, max_commit_retries: int | None = None) -> Any:
    delta = package("deltalake.transaction")
    return delta.CommitProperties(
        custom_metadata={_APP: app, _CHECKPOINT: str(checkpoint), _DIGEST: digest},
        app_transactions=[delta.Transaction(app, checkpoint)],
        max_commit_retries=max_commit_retries,
    )


def _sql(name: str) -> str:
    """Quote a column's name for DataFusion."""
    return "`" + name.replace("`", "``") + "`"
