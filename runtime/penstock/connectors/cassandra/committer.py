"""What waited for its checkpoint is sent, and a note of it kept in Cassandra.

Of each subtask the last checkpoint that was sent is noted, so that after a crash only what may not have arrived is sent once more; its rows have the times
they had, and change nothing that was written since. The note is written with the time of the checkpoint's last row: an older one never replaces a newer one.

Checkpoints' ids and machines' clocks are compared within one run, which is the life of one writer: ids may begin anew, and another machine's clock may be
behind. What another run has noted says nothing of this one's, whose rows are then sent, maybe a second time.
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
from penstock.connectors.sink import Committer
from penstock.connectors.spark.staged import content_of
from penstock.connectors.write_ahead import CheckpointCommitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.cassandra.sink import CassandraTableSink

logger = logging.getLogger(__name__)

_PATIENCE_S = 30.0
NOTES = "penstock_checkpoints"
_TABLE = "(sink_id text, subtask int, checkpoint_id bigint, run text, last_row bigint, PRIMARY KEY (sink_id, subtask))"


class CassandraCommitter(CheckpointCommitter):
    """Notes in a table `penstock_checkpoints` which checkpoint of each sink and subtask was the last one sent.

    Args:
        key_space: where that table is, and is made if it is not there; that of the sink's own table, unless given.
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
        """This one, in that keyspace unless another one was given."""
        return CassandraCommitter(self.builder, self.key_space or keyspace)

    @property
    def _name(self) -> str:
        if not self.key_space:
            raise InvalidJob("a CassandraCommitter without key_space", remedy="name the keyspace in which it notes")
        return f"{quoted(self.key_space)}.{NOTES}"

    def prepare(self) -> None:
        """Make the table, if there is none.

        Raises:
            SinkError: it cannot be made.
        """
        what = f"table {self._name} cannot be made or read (create it as another user, and grant SELECT and MODIFY: create table {self._name} {_TABLE})"
        self._ask(lambda connection: self._make(connection), what)

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
        """Whether this checkpoint of this run, or a later one, was sent."""
        return any(
            row.run == run and row.checkpoint_id >= checkpoint_id and row.last_row >= last_row
            for row in self._notes(sink_id, subtask)
        )

    def _notes(self, sink_id: str, subtask: int) -> list[Any]:
        found: list[Any] = self._ask(
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
        self._ask(
            lambda connection: connection.execute(
                f"INSERT INTO {self._name} (sink_id, subtask, checkpoint_id, run, last_row) VALUES (%s, %s, %s, %s, %s) USING TIMESTAMP {int(at)}",
                (sink_id, subtask, checkpoint_id, run, at),
            ),
            f"{self._name} cannot be written",
        )

    def _ask(self, what: Callable[[Connection], Any], problem: str) -> Any:
        pauses = Pauses(_PATIENCE_S)
        while True:
            try:
                if self._connection is None:
                    self._connection = self.builder.connect(SinkError, ConsistencyLevel.LOCAL_QUORUM)
                return what(self._connection)
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
    def __init__(self, sink: CassandraTableSink, uid: str, notes: CheckpointCommitter) -> None:
        self._sink = sink
        self._uid = uid
        self._notes = notes
        self._requests = sink.requests(self.check_wanted)

    def commit(self, committables: list[Any]) -> None:
        """
        Raises:
            SinkError: the server is lost for long, or refuses a row.
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
                logger.info("checkpoint %d of subtask %d was sent before", checkpoint, subtask)
                continue
            self._send(piece)
            self.check_wanted()  # a late note would hide what another attempt has noted since
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
        """Every request has its time-out: nothing waits for ever."""

    def close(self) -> None:
        self._requests.close()
        if isinstance(self._notes, CassandraCommitter):
            self._notes.close()
