"""`CassandraTableSink`: rows into a table, or into a statement of the user's own.

CassandraTableSink("cassandra-1", "weather.means", ["station", "hour", "celsius"])
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.cassandra.cluster import ClusterBuilder, is_lost, package
from penstock.connectors.cassandra.committer import CassandraCommitter, HeldRowsCommitter
from penstock.connectors.cassandra.options import MapperOptions
from penstock.connectors.cassandra.requests import Requests
from penstock.connectors.cassandra.statements import check_statement, check_table, insert_into
from penstock.connectors.cassandra.writer import DirectWriter, HoldingWriter
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.write_ahead import CheckpointCommitter


class CassandraTableSink(Sink):
    """
    Args:
        cluster: a host, several, or a `ClusterBuilder`.
        table: "keyspace.table"; rows replace those with their primary key.
        columns: those that are written. Tuples and `Row`s give them in this order, dicts, named tuples and objects by their names.
        statement: instead of table and columns: an INSERT, UPDATE or DELETE with `?` or `:name` for the values.
        write_ahead: rows wait for their checkpoint, and the JobManager sends them.
        committer: where it notes what was sent; in the table's own keyspace, unless given.
        options: consistency, time to live, what becomes of None.
        max_in_flight: requests that are on their way at the same time, from each subtask.
        patience: how long a server that takes nothing is tried until the job fails over.
    """

    def __init__(
        self,
        cluster: str | Sequence[str] | ClusterBuilder,
        table: str = "",
        columns: Sequence[str] = (),
        *,
        statement: str = "",
        write_ahead: bool = False,
        committer: CheckpointCommitter | None = None,
        options: MapperOptions | None = None,
        max_in_flight: int = 128,
        patience: TimeLike = 30_000,
    ) -> None:
        package()
        self.cluster = cluster if isinstance(cluster, ClusterBuilder) else ClusterBuilder(cluster)
        self.options = MapperOptions() if options is None else options
        self.columns = tuple(columns)
        if bool(table) == bool(statement):
            raise InvalidJob("a Cassandra sink writes to a table, or by a statement", remedy="give one of the two")
        if statement:
            check_statement(statement)
            if columns or self.options.only_of_tables:
                what = "columns" if columns else ", ".join(self.options.only_of_tables)
                raise InvalidJob(f"{what} beside the statement {statement!r}", remedy="write it into the statement")
        self.statement = statement or insert_into(table, columns, self.options)
        if committer is not None and not write_ahead:
            raise InvalidJob("a committer without write_ahead=True", remedy="leave it out, or have rows wait for it")
        self.write_ahead = write_ahead
        self.committer = committer
        if max_in_flight < 1:
            raise InvalidJob(f"max_in_flight={max_in_flight}", remedy="one request at the least")
        self.max_in_flight = max_in_flight
        self.patience_ms = as_millis(patience, "patience")

    def requests(self, check: Callable[[], None] | None = None) -> Requests:
        return Requests(self.cluster, self.options, self.max_in_flight, self.patience_ms / 1000, check)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return HoldingWriter(self, context) if self.write_ahead else DirectWriter(self)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self.write_ahead:
            return None
        notes = self.committer if self.committer is not None else CassandraCommitter(self.cluster)
        notes = notes.with_object_store_options(object_store_options)
        if isinstance(notes, CassandraCommitter):
            if not notes.key_space:
                notes = notes.in_keyspace(self._keyspace())
            notes.prepare()
        return HeldRowsCommitter(self, uid, notes)

    def _keyspace(self) -> str:
        requests = self.requests()
        try:
            return str(requests.prepare(self.statement).column_metadata[0].keyspace_name)
        finally:
            requests.close()

    def with_object_store_options(self, options: dict[str, Any]) -> Sink:
        if self.committer is None:
            return self
        sink = copy.copy(self)
        sink.committer = self.committer.with_object_store_options(options)
        return sink

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if self.write_ahead and not interval_ms and not bounded:
            raise InvalidJob(
                "a write-ahead log without checkpoints: nothing would ever be sent",
                remedy="env.enable_checkpointing(1000), or leave the write-ahead log out",
            )

    def validate(self) -> None:
        """
        Raises:
            SinkError: the server does not answer or does not let us, or the statement does not fit what is there.
        """
        connection = self.cluster.connect(SinkError, self.options.level)
        try:
            prepared = connection.prepare(self.statement)
            if not prepared.column_metadata:
                raise InvalidJob(f"{self.statement!r} takes no values", remedy="write ? where those of a record go")
            check_table(connection, self.cluster, prepared)
        except (SinkError, InvalidJob):
            raise
        except Exception as error:
            what = "does not answer" if is_lost(error) else f"{self.statement!r} is not taken"
            raise self.cluster.explained(SinkError, what, error) from error
        finally:
            connection.close()
        if self.committer is not None:
            self.committer.validate()
