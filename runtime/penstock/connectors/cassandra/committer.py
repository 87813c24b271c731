"""Send the rows of completed checkpoints, and note each sent checkpoint in Cassandra.

The note has the last sent checkpoint of each subtask. After a crash, the committer sends only checkpoints that may not
have arrived. The rows of these checkpoints keep their write times, so they change nothing that was written later. A
note has the write time of the checkpoint's last row, so an older note never replaces a newer note.

Checkpoint ids and clocks are comparable only within one run, which is the lifetime of one writer. In another run, ids
may restart, and another machine's clock may be behind. So notes of another run do not apply to this run. This run sends
its rows, possibly for a second time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.common.errors import EpochFailed, InvalidJob, SinkError
from penstock.connectors.cassandra.cluster import ClusterBuilder, Connection, is_lost
from penstock.connectors.cassandra.options import ConsistencyLevel
from penstock.connectors.cassandra.requests import Pauses, Write
from penstock.connectors.cassandra.statements import quoted
from penstock.connectors.core.sink import Committer
from penstock.connectors.core.write_ahead import CheckpointCommitter
from penstock.connectors.spark.staged import content_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.cassandra.settings import CassandraSinkSettings

logger = logging.getLogger(__name__)

_PATIENCE_S = 30.0
NOTES = "penstock_checkpoints"
_TABLE = "(sink_id text, subtask int, checkpoint_id bigint, run text, last_row bigint, PRIMARY KEY (sink_id, subtask))"


class CassandraCommitter(CheckpointCommitter):
    """A committer that stores the last sent checkpoint of each sink and subtask in a table `penstock_checkpoints`.

    Args:
        key_space: the keyspace of that table, which is created if it does not exist. The default is the keyspace of the sink's table.
    """

    def __init__(self, builder: ClusterBuilder, key_space: str | None = None) -> None:
        self.builder = builder
        self.key_space = key_space
        self._connection: Connection | None = None

    @staticmethod
    def default_checkpoint_committer(builder: ClusterBuilder, key_space: str | None = None) -> CassandraCommitter:
        return CassandraCommitter(builder, key_space)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def in_keyspace(self, keyspace: str) -> CassandraCommitter:
        """Return this committer with the given keyspace, or with its own keyspace if it has one."""
        return CassandraCommitter(self.builder, self.key_space or keyspace)

    @property
    def _name(self) -> str:
        if not self.key_space:
            raise InvalidJob(
                "CassandraCommitter has no key_space",
                remedy="pass the keyspace for the table in which it records commits",
            )
        return f"{quoted(self.key_space)}.{NOTES}"

    def prepare(self) -> None:
        """Create the table if it does not exist.

        Raises:
            SinkError: the table cannot be created.
        """
        problem = f"table {self._name} cannot be created or read (create it as another user, and grant SELECT and MODIFY: create table {self._name} {_TABLE})"
        self._run(lambda connection: self._make(connection), problem)

    def _make(self, connection: Connection) -> None:
        found = connection.execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
            (self.key_space, NOTES),
        )
        if not found:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name} {_TABLE}")
        connection.execute(f"SELECT run FROM {self._name} WHERE sink_id = 'any' AND subtask = 0")

    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int) -> bool:
        return any(row.checkpoint_id >= checkpoint_id for row in self._notes(sink_id, subtask))

    def is_sent(self, sink_id: str, subtask: int, checkpoint_id: int, run: str, last_row: int) -> bool:
        """Return whether this checkpoint, or a later checkpoint of the same run, was sent."""
        return any(
            row.run == run and row.checkpoint_id >= checkpoint_id and row.last_row >= last_row
            for row in self._notes(sink_id, subtask)
        )

    def _notes(self, sink_id: str, subtask: int) -> list[Any]:
        found: list[Any] = self._run(
            lambda connection: connection.execute(
                f"SELECT checkpoint_id, run, last_row FROM {self._name} WHERE sink_id = %s AND subtask = %s",
                (sink_id, subtask),
            ),
            f"{self._name} cannot be read",
        )
        return found

    def commit(self, sink_id: str, subtask: int, checkpoint_id: int) -> None:
        self._note(sink_id, subtask, checkpoint_id, "", checkpoint_id)

    def note(self, sink_id: str, subtask: int, checkpoint_id: int, run: str, last_row: int) -> None:
        self._note(sink_id, subtask, checkpoint_id, run, last_row)

    def _note(self, sink_id: str, subtask: int, checkpoint_id: int, run: str, at: int) -> None:
        self._run(
            lambda connection: connection.execute(
                f"INSERT INTO {self._name} (sink_id, subtask, checkpoint_id, run, last_row) VALUES (%s, %s, %s, %s, %s) USING TIMESTAMP {int(at)}",
                (sink_id, subtask, checkpoint_id, run, at),
            ),
            f"{self._name} cannot be written",
        )

    def _run(self, call: Callable[[Connection], Any], problem: str) -> Any:
        pauses = Pauses(_PATIENCE_S)
        while True:
            try:
                if self._connection is None:
                    self._connection = self.builder.connect(SinkError, ConsistencyLevel.LOCAL_QUORUM)
                return call(self._connection)
            except SinkError as error:
                if error.__cause__ is None or not is_lost(error.__cause__) or not pauses.wait():
                    raise
            except Exception as error:
                if not is_lost(error) or not pauses.wait():
                    raise self.builder.explained(SinkError, problem, error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class HeldRowsCommitter(Committer):
    def __init__(self, sink: CassandraSinkSettings, uid: str, notes: CheckpointCommitter) -> None:
        self._sink = sink
        self._uid = uid
        self._notes = notes
        self._requests = sink.requests(self.check_wanted)

    def commit(self, committables: list[Any]) -> None:
        """Send the rows of completed checkpoints.

        Raises:
            SinkError: the server is unavailable for too long, or rejects a row.
        """
        for piece in sorted(committables, key=lambda piece: (piece["checkpoint"], piece["subtask"])):
            self.check_wanted()
            checkpoint, subtask, run, at = piece["checkpoint"], piece["subtask"], piece["run"], piece["at"]
            name = f"{piece['job']}-{self._uid}".replace("/", "_")
            if isinstance(self._notes, CassandraCommitter):
                done = self._notes.is_sent(name, subtask, checkpoint, run, at)
            else:
                done = self._notes.is_committed(name, subtask, checkpoint)
            if done:
                logger.info("checkpoint %d of subtask %d is already committed", checkpoint, subtask)
                continue
            self._send(piece)
            self.check_wanted()  # a late note would hide newer notes of another attempt
            if isinstance(self._notes, CassandraCommitter):
                self._notes.note(name, subtask, checkpoint, run, at)
            else:
                self._notes.commit(name, subtask, checkpoint)

    def _send(self, piece: dict[str, Any]) -> None:
        rows = msgspec.msgpack.decode(content_of(piece, self.environment))
        about = f"a row of checkpoint {piece['checkpoint']}, subtask {piece['subtask']}"
        writes = [Write(at, values, f"{about}: {values}") for at, values in rows]
        try:
            self._requests.send(piece["statement"], writes)
            self._requests.flush(piece["statement"])
        except EpochFailed:
            self._requests.forget()
            raise

    def interrupt(self) -> None:
        """Do nothing: every request has a timeout, so no call blocks forever."""

    def close(self) -> None:
        self._requests.close()
        if isinstance(self._notes, CassandraCommitter):
            self._notes.close()
