"""A Delta table as its committer needs it: files, or changed rows, and a `txn` action in one commit."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import SinkError
from penstock.connectors.delta.table import create, exists, open_table, package, schema_of, unreachable
from penstock.connectors.delta.target import has_file, remover
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.lakehouse.commits import TableLog
from penstock.connectors.sql.held_rows import GONE

if TYPE_CHECKING:
    from penstock.connectors.delta.sink import DeltaSink
    from penstock.connectors.lakehouse.upserts import Changes

logger = logging.getLogger(__name__)

_APP, _CHECKPOINT, _DIGEST = "penstock-app", "penstock-checkpoint", "penstock-files"
_HISTORY = 1000
"""Commits that are looked through for a note of our own."""


class DeltaLog(TableLog):
    def __init__(self, sink: DeltaSink, options: dict[str, str], fsspec_options: StorageOptions) -> None:
        self.name = sink.path
        self._sink = sink
        self._options = options
        self._fsspec_options = fsspec_options
        self._remove = remover(sink.path, fsspec_options)
        self._table: Any = None

    def prepare(self) -> None:
        """Make the table, or add columns to it, where the sink says so."""
        sink = self._sink
        if sink.create and not exists(sink.path, self._options, SinkError):
            try:
                create(sink.path, sink.shape.schema, sink.partition_by, self._options)
            except Exception as error:
                raise unreachable(sink.path, error, SinkError) from error
        if sink.add_columns:
            self._add_columns()

    def _add_columns(self) -> None:
        table = open_table(self.name, self._options, SinkError)
        new = self._sink.fit_to(table, adds_columns=True).new
        if not new:
            return
        delta = package()
        fields = list(delta.Schema.from_arrow(pa.schema(list(new))).fields)
        try:
            table.alter.add_columns(fields)
        except Exception as error:
            open_now = open_table(self.name, self._options, SinkError)
            if self._sink.fit_to(open_now, adds_columns=True).new:  # nobody else has added them
                raise SinkError(
                    f"columns {', '.join(field.name for field in new)} cannot be added to {self.name!r}: {error}",
                    remedy="add them by hand, or stop whoever changes the table at the same time",
                ) from error
        logger.info("columns %s are added to table %r", ", ".join(field.name for field in new), self.name)

    def look(self) -> None:
        if self._table is None:
            self._table = open_table(self.name, self._options, SinkError)
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
        with self._looked_at_anew_after_errors():
            self._table.create_write_transaction(
                adds,
                "append",
                self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=_note(app, checkpoint, digest),
            )

    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        """delta-rs finds and rewrites the files. It makes no commit where nothing changes, and the note is one of its own then."""
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
            streamed_exec=False,  # files are left out by the least and greatest key
            commit_properties=_note(app, checkpoint, digest, max_commit_retries=0),
        ).when_matched_delete(f"s.{_sql(GONE)}")
        if changed:
            merger = merger.when_matched_update(changed)
        merger = merger.when_not_matched_insert(taken, predicate=f"not s.{_sql(GONE)}")
        with self._looked_at_anew_after_errors():
            merger.execute()
        if self.last_checkpoint(app) != checkpoint:
            self.append(app, checkpoint, digest, [])

    @contextmanager
    def _looked_at_anew_after_errors(self) -> Iterator[None]:
        """Whatever the table holds by then."""
        try:
            yield
        except BaseException:
            self._table = None
            raise

    def size(self) -> tuple[int, int]:
        sizes = pa.table(self._table.get_add_actions(flatten=True)).column("size_bytes")
        return len(sizes), pc.sum(sizes).as_py() or 0

    def has(self, path: str) -> bool:
        return has_file(self.name, path, self._fsspec_options)

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
    """A column's name as DataFusion takes it."""
    return "`" + name.replace("`", "``") + "`"
