"""The rows of a checkpoint and its id, in one transaction (`commits`). The lock is a row of the table of notes, of the transaction itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import PlatformError, SinkError
from penstock.connectors.spark.staged import content_of, from_ipc
from penstock.connectors.sql import commits
from penstock.connectors.sql.commits import NOTES, NotingCommitter
from penstock.connectors.sql.server import Server, let_go, package
from penstock.connectors.sql.statements import Statements, refused_row, write_rows
from penstock.connectors.sql.tables import engine_of

if TYPE_CHECKING:
    from penstock.connectors.sql.sink import SqlSink

_LOCK = -1
"""The checkpoint of the row that is the lock."""
_TRANSACTIONAL = ("innodb", "rocksdb", "ndbcluster", "")


def check_transactions(server: Server, table: str, engine: str) -> None:
    """
    Raises:
        SinkError: a table of this engine has none, or it is a view, of which one cannot tell.
    """
    if engine == "view":
        raise SinkError(
            f"{server.shown}: {table} is a view, of which it is not known whether it has transactions",
            remedy="name the table itself, or DeliveryGuarantee.AT_LEAST_ONCE",
        )
    if engine.lower() not in _TRANSACTIONAL:
        raise SinkError(
            f"{server.shown}: {table} has the engine {engine}, which knows no transactions: rows could come twice",
            remedy=f"alter table {table} engine = InnoDB, or DeliveryGuarantee.AT_LEAST_ONCE",
        )


class SqlCommitter(NotingCommitter):
    def __init__(self, sink: SqlSink) -> None:
        super().__init__(sink.table)
        self._sink = sink
        self._database = sink.server.database
        self._statements: Statements | None = None

    def prepare(self) -> None:
        """Make the table of notes, if there is none.

        Raises:
            SinkError: it cannot be made, or knows no transactions.
        """
        server = self._sink.server
        connection = server.connect(SinkError, autocommit=True)
        try:
            if not package().inspect(connection).has_table(NOTES):
                connection.exec_driver_sql(self._database.notes_table)
            check_transactions(server, NOTES, engine_of(connection, NOTES))
        except package("sqlalchemy.exc").IntegrityError:
            return  # Postgres: somebody else has made it at the same time
        except package("sqlalchemy.exc").DBAPIError as error:
            raise server.explained(SinkError, f"table {NOTES!r} cannot be made", error) from error
        finally:
            connection.close()

    def _connect(self) -> Any:
        return self._sink.server.connect(SinkError)

    def _transaction(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._connection.begin()
        return found

    def _run(self, statement: str, *values: Any) -> Any:
        return self._connection.exec_driver_sql(statement.replace("?", self._database.mark), values)

    def _lock(self, app: str) -> None:
        # Written anew each time: where several servers take writes (Galera), of two such transactions one fails.
        tail = self._database.instead(["app", "checkpoint"], ["digest", "committed_at"])
        statement = f"insert into {NOTES} (app, checkpoint, digest, committed_at) values (?, {_LOCK}, ?, {self._database.now}) {tail}"
        self._run(statement, app, commits.token())

    def _noted(self, app: str) -> list[tuple[int, str, float]]:
        statement = (
            f"select checkpoint, digest, {self._database.noted_ms} from {NOTES} where app = ? and checkpoint >= 0"
        )
        return [(int(number), str(digest), float(at)) for number, digest, at in self._run(statement, app)]

    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        sink = self._sink
        write_rows(self._connection, self._prepared(), sink.shape.names, sink.key, batches, deletes=sink.deletes)

    def _prepared(self) -> Statements:
        if self._statements is None:
            sink = self._sink
            self._statements = Statements.of(self._connection, self._database, sink.table, sink.shape.names, sink.key)
        return self._statements

    def _note(self, app: str, checkpoint: int, digest: str) -> None:
        self._run(
            f"insert into {NOTES} (app, checkpoint, digest, committed_at) values (?, ?, ?, {self._database.now})",
            app,
            checkpoint,
            digest,
        )
        rows = self._run(
            f"select checkpoint from {NOTES} where app = ? and checkpoint >= 0 order by checkpoint desc limit {commits.KEPT + 1}",
            app,
        ).fetchall()
        if len(rows) > commits.KEPT:
            self._run(
                f"delete from {NOTES} where app = ? and checkpoint >= 0 and checkpoint <= ?", app, int(rows[-1][0])
            )

    def _is_lost(self, error: Exception) -> bool | None:
        return self._sink.server.is_lost(error)

    def _explained(self, what: str, error: Exception) -> PlatformError:
        return self._sink.server.explained(SinkError, what, error)

    def _refused(self, pieces: list[dict[str, Any]]) -> str:
        sink = self._sink
        connection = self._connect()
        try:
            batches = (
                batch for piece in pieces for batch in from_ipc(content_of(piece, self.environment)).to_batches()
            )
            return refused_row(connection, self._prepared(), sink.shape.names, sink.key, batches, deletes=sink.deletes)
        finally:
            connection.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        let_go(connection)

    def interrupt(self) -> None:
        """End the statement that does not return."""
        connection = self._connection
        if connection is not None:
            self._database.interrupt(connection, self._connect)
