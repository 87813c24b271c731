"""The committer of `SqlSink`: the rows of a checkpoint and its id, in one transaction (`penstock.connectors.tables.commits`).

The lock is a row of the table of notes. The transaction writes this row first.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.statements import Statements, refused_row, write_rows
from penstock.connectors.sql.tables import engine_of
from penstock.connectors.tables import commits
from penstock.connectors.tables.commits import NOTES, NotingCommitter

if TYPE_CHECKING:
    from penstock.connectors.sql.settings import SqlSinkSettings

_LOCK = -1
"""Checkpoint id of the row that serves as the lock."""
_TRANSACTIONAL = ("innodb", "rocksdb", "ndbcluster", "")


def check_transactions(server: Server, table: str, engine: str) -> None:
    """Check that a table of this engine has transactions.

    Raises:
        SinkError: the engine has no transactions, or the table is a view, whose engine is not known.
    """
    if engine == "view":
        raise SinkError(
            f"{server.shown}: {table} is a view. The connector cannot find out whether a view has transactions",
            remedy="name the table itself, or use DeliveryGuarantee.AT_LEAST_ONCE",
        )
    if engine.lower() not in _TRANSACTIONAL:
        raise SinkError(
            f"{server.shown}: {table} has the engine {engine}, which has no transactions. Rows could be written twice",
            remedy=f"alter table {table} engine = InnoDB, or use DeliveryGuarantee.AT_LEAST_ONCE",
        )


class SqlCommitter(NotingCommitter):
    def __init__(self, sink: SqlSinkSettings) -> None:
        super().__init__(sink.server, sink.table)
        self._sink = sink
        self._database = sink.server.database
        self._statements: Statements | None = None

    def prepare(self) -> None:
        server = self._sink.server
        try:
            with server.session(SinkError) as connection:
                if not package().inspect(connection).has_table(NOTES):
                    connection.exec_driver_sql(self._database.notes_table)
                check_transactions(server, NOTES, engine_of(connection, NOTES))
        except package("sqlalchemy.exc").IntegrityError:
            return  # Postgres: another session created the table at the same time
        except package("sqlalchemy.exc").DBAPIError as error:
            raise server.explained(SinkError, f"table {NOTES!r} cannot be created", error) from error

    def _transaction(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._connection.begin()
        return found

    def _run(self, statement: str, *values: Any) -> Any:
        return self._connection.exec_driver_sql(statement.replace("?", self._database.mark), values)

    def _lock(self, app: str) -> None:
        # Each attempt writes a different token. If several servers accept writes (Galera), one of two concurrent transactions thus fails.
        tail = self._database.instead(["app", "checkpoint"], ["digest", "committed_at"])
        statement = f"insert into {NOTES} (app, checkpoint, digest, committed_at) values (?, {_LOCK}, ?, {self._database.now}) {tail}"
        self._run(statement, app, commits.token())

    def _noted(self, app: str) -> list[tuple[int, str, float]]:
        statement = (
            f"select checkpoint, digest, {self._database.noted_ms} from {NOTES} where app = ? and checkpoint >= 0"
        )
        return [(int(number), str(digest), float(at)) for number, digest, at in self._run(statement, app)]

    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        if self._statements is None:
            self._statements = Statements.of(self._connection, self._sink)
        write_rows(self._connection, self._statements, batches)

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

    def _refused(self, batches: Iterable[pa.RecordBatch]) -> str:
        with self._server.connect(SinkError) as connection:
            return refused_row(connection, Statements.of(connection, self._sink), batches)

    def interrupt(self) -> None:
        """Cancel a statement that does not return."""
        connection = self._connection
        if connection is not None:
            self._database.interrupt(connection, lambda: self._server.connect(SinkError))
