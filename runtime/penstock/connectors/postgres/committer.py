"""The rows of a checkpoint and its id, in one transaction (`penstock.connectors.sql.commits`), with `COPY` and a lock of Postgres's on the sink's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import PlatformError, SinkError
from penstock.connectors.postgres.client import is_lost, package, quoted
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.sql import commits
from penstock.connectors.sql.commits import NOTES, NotingCommitter

if TYPE_CHECKING:
    from penstock.connectors.postgres.sink import PostgresSink


class PostgresCommitter(NotingCommitter):
    def __init__(self, sink: PostgresSink) -> None:
        super().__init__(sink.table)
        self._sink = sink

    def prepare(self) -> None:
        """Make the table of notes, if there is none.

        Raises:
            SinkError: it cannot be made.
        """
        psycopg = package()
        try:
            with self._sink.server.connect(SinkError) as connection:
                if connection.execute("select to_regclass(%s)", [quoted(NOTES)]).fetchone()[0] is None:
                    connection.execute(
                        f"create table if not exists {NOTES} (app text not null, checkpoint bigint not null, digest text not null, "
                        "committed_at timestamptz not null default now(), primary key (app, checkpoint))"
                    )
        except psycopg.errors.UniqueViolation:
            return  # somebody else has made it at the same time
        except psycopg.Error as error:
            raise self._sink.server.explained(SinkError, f"table {NOTES!r} cannot be made", error) from error

    def _connect(self) -> Any:
        connection = self._sink.server.connect(SinkError)
        # Whatever the role's default is: what looks for notes behind the lock sees what was there when it got the lock, not when it asked for it.
        connection.isolation_level = package().IsolationLevel.READ_COMMITTED
        return connection

    def _transaction(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._connection.transaction()
        return found

    def _lock(self, app: str) -> None:
        lock = int.from_bytes(hashlib.blake2b(app.encode(), digest_size=8).digest(), signed=True)
        self._connection.execute("select pg_advisory_xact_lock(%s)", [lock])

    def _noted(self, app: str) -> list[tuple[int, str, float]]:
        statement = f"select checkpoint, digest, extract(epoch from committed_at) * 1000 from {NOTES} where app = %s and checkpoint >= 0"
        found: list[tuple[int, str, float]] = self._connection.execute(statement, [app]).fetchall()
        return found

    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        sink = self._sink
        write_rows(self._connection, quoted(sink.table), sink.shape.names, sink.key, batches, deletes=sink.deletes)

    def _note(self, app: str, checkpoint: int, digest: str) -> None:
        self._connection.execute(
            f"insert into {NOTES} (app, checkpoint, digest) values (%s, %s, %s)", [app, checkpoint, digest]
        )
        self._connection.execute(
            f"delete from {NOTES} where app = %s and checkpoint >= 0 and checkpoint < (select min(checkpoint) from "
            f"(select checkpoint from {NOTES} where app = %s order by checkpoint desc limit {commits.KEPT}) kept)",
            [app, app],
        )

    def _is_lost(self, error: Exception) -> bool | None:
        return is_lost(error) if isinstance(error, package().Error) else None

    def _explained(self, what: str, error: Exception) -> PlatformError:
        return self._sink.server.explained(SinkError, what, error)

    def interrupt(self) -> None:
        """End the statement that does not return."""
        connection = self._connection
        if connection is not None:
            connection.cancel_safe(timeout=2.0)
