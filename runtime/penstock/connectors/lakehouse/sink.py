"""The sinks that write rows into tables in a lake, with one commit per checkpoint."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from penstock.common.errors import InvalidJob
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.file.sink.part_file import owner_of
from penstock.connectors.lakehouse.commits import TableCommitter, app_of
from penstock.connectors.lakehouse.files import TableTarget, TableWriter
from penstock.connectors.lakehouse.settings import LakehouseSinkSettings
from penstock.connectors.lakehouse.upserts import ChangesWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.file.storage import StorageOptions
    from penstock.connectors.lakehouse.log import LakehouseLog


class LakehouseSink(LakehouseSinkSettings, Sink):
    """Base class of the sinks of all table formats."""

    @abstractmethod
    def _target(self, table: Any, schema: pa.Schema, options: StorageOptions) -> TableTarget:
        """Return the place of a subtask's files."""

    @abstractmethod
    def _log(self, options: StorageOptions) -> LakehouseLog:
        """Return the table for the committer."""

    def with_object_store_options(self, options: dict[str, Any]) -> Self:
        other = copy(self)
        other._store_options = dict(options)
        return other

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        options = self.store_options(context.object_store_options)
        table = self.open_table(options)
        schema = self.fit_to(table).schema
        app = app_of(context.job_id, context.uid)
        if self.key:
            return ChangesWriter(self, app, context, schema)
        prefix = f"part-{owner_of(context.job_id, context.uid)}-{context.attempt}-{context.subtask}"
        return TableWriter(self._target(table, schema, options), app, self.shape, prefix, self.file_bytes)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        """Create the table, or add its new columns, before any subtask starts to write. Return the committer."""
        log = self._log(self.store_options(object_store_options))
        log.prepare()
        return TableCommitter(log, app_of(job_id, uid), self.key)

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if not interval_ms and not bounded:
            raise InvalidJob(
                f"{type(self).__name__} without checkpoints would never commit",
                remedy="env.enable_checkpointing(60_000): every checkpoint becomes a commit of the table",
            )

    def validate(self) -> None:
        """Check before the job starts that the table can be written.

        Raises:
            InvalidJob: the table cannot be written by this sink, or the fields do not fit.
            SinkError: the table does not exist or is unreachable.
        """
        options = self.store_options({})
        if self.create and not self.exists(options):
            self.new_schema()
            return
        self.fit_to(self.open_table(options), adds_columns=self.add_columns)
