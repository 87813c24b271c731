"""`CassandraTableSink`: write rows into a table, or with the user's own statement.

CassandraTableSink("cassandra-1", "weather.means", ["station", "hour", "celsius"])
"""

from __future__ import annotations

import copy
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.cassandra.cluster import is_lost
from penstock.connectors.cassandra.committer import CassandraCommitter, HeldRowsCommitter
from penstock.connectors.cassandra.settings import CassandraSinkSettings
from penstock.connectors.cassandra.statements import check_table
from penstock.connectors.cassandra.writer import DirectWriter, HoldingWriter
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext


class CassandraTableSink(CassandraSinkSettings, Sink):
    """A sink that writes each record as a row of a table, or with a statement of the user.

    Args:
        cluster: a host, several hosts, or a `ClusterBuilder`.
        table: the name, as "keyspace.table". A row replaces the row with the same primary key.
        columns: the written columns. The sink reads the values of tuples and `Row`s in this order,
            and the values of dicts, named tuples and objects by name.
        statement: an INSERT, UPDATE or DELETE with `?` or `:name` for the values. It replaces `table` and `columns`.
        write_ahead: store rows in the checkpoint. The JobManager sends them when the checkpoint is complete.
        committer: the store that records which checkpoints were sent, for `write_ahead`. The default is a table in the keyspace of `table`.
        options: consistency, time to live, and the handling of None.
        max_in_flight: the maximum number of concurrent requests of each subtask.
        patience: how long the sink retries while the server accepts nothing. After this time the job fails over.
    """

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
                "a write-ahead log without checkpoints would never send rows",
                remedy="env.enable_checkpointing(1000), or leave the write-ahead log out",
            )

    def validate(self) -> None:
        """Check before the job starts that the cluster is reachable and the statement fits the table.

        Raises:
            SinkError: the server does not answer or refuses access, or the statement does not fit the table.
        """
        connection = self.cluster.connect(SinkError, self.options.level)
        try:
            prepared = connection.prepare(self.statement)
            if not prepared.column_metadata:
                raise InvalidJob(
                    f"the statement {self.statement!r} has no placeholders for values",
                    remedy="write a ? for each value of a record",
                )
            check_table(connection, self.cluster, prepared)
        except (SinkError, InvalidJob):
            raise
        except Exception as error:
            problem = "does not answer" if is_lost(error) else f"{self.statement!r} is not accepted"
            raise self.cluster.explained(SinkError, problem, error) from error
        finally:
            connection.close()
        if self.committer is not None:
            self.committer.validate()
