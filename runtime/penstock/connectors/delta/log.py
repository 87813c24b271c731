"""A Delta table as its committer needs it: files and a `txn` action in one commit."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.delta.table import create, exists, open_table, package, unreachable
from penstock.connectors.delta.target import has_file, remover
from penstock.connectors.file.storage import StorageOptions
from penstock.connectors.lakehouse.commits import TableLog

if TYPE_CHECKING:
    from penstock.connectors.delta.sink import DeltaSink

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
        noted = {_APP: app, _CHECKPOINT: str(checkpoint), _DIGEST: digest}
        try:
            self._table.create_write_transaction(
                adds,
                "append",
                self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=delta.CommitProperties(
                    custom_metadata=noted, app_transactions=[delta.Transaction(app, checkpoint)]
                ),
            )
        except BaseException:
            self._table = None  # whatever it holds now, the table is looked at anew
            raise

    def has(self, path: str) -> bool:
        return has_file(self.name, path, self._fsspec_options)

    def remove(self, path: str) -> None:
        self._remove(path)
