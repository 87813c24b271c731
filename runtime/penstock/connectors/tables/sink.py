"""The sinks that write records as rows of a table."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.lakehouse.commits import app_of
from penstock.connectors.tables.columns import TableDefinition
from penstock.connectors.tables.commits import NotingCommitter
from penstock.connectors.tables.row_writers import DirectWriter, StagingWriter
from penstock.connectors.tables.settings import TableSinkSettings


class TableSink(TableSinkSettings, Sink):
    """Base class of the sinks of all databases."""

    @abstractmethod
    def _direct_writer(self) -> DirectWriter:
        """Return the writer for at least once."""

    @abstractmethod
    def _committer(self) -> NotingCommitter:
        """Return the committer for exactly once."""

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        if self.is_exactly_once:
            return StagingWriter(self, app_of(context.job_id, context.uid), context.subtask, self.prepared)
        return self._direct_writer()

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self.is_exactly_once:
            return None
        committer = self._committer()
        committer.prepare()
        return committer

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        """Check before the start of the job that the sink works without checkpoints. A job with checkpoints needs no
        check.

        Raises:
            InvalidJob: the sink needs checkpoints.
        """
        if self.is_exactly_once and not interval_ms and not bounded:
            raise InvalidJob(
                "the exactly-once sink into a database needs checkpoints: without them it never commits a row",
                remedy="call env.enable_checkpointing(1000), or use DeliveryGuarantee.AT_LEAST_ONCE",
            )

    def _check_index(self, table: TableDefinition, indexes: tuple[frozenset[str], ...], properties: str) -> None:
        """Check that the table has a unique index for the sink's key.

        Args:
            indexes: the sets of columns that an upsert can use.
            properties: the properties of a valid index, for the error.

        Raises:
            SinkError: the table has no such index.
        """
        if self.key and frozenset(self.key) not in indexes:
            raise SinkError(
                f"{self.server.shown}: {table.sql} has no primary key or unique index ({properties}) of exactly {', '.join(self.key)}",
                remedy="add one, or name the columns of an existing one as key",
            )
