"""The committer of `PostgresSink`: the rows of a checkpoint and its id, in one transaction (`penstock.connectors.tables.commits`).

It writes with `COPY`, and takes an advisory lock on the sink's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.postgres.client import package, quoted
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.tables import commits
from penstock.connectors.tables.commits import NOTES, NotingCommitter

if TYPE_CHECKING:
    from penstock.connectors.postgres.settings import PostgresSinkSettings


class PostgresCommitter(NotingCommitter):
    def __init__(self, sink: PostgresSinkSettings) -> None:
        super().__init__(sink.server, sink.table)
        self._sink = sink

    def prepare(self) -> None:
        psycopg = package()
        try:
            with self._sink.server.connect(SinkError) as connection:
                if connection.execute("select to_regclass(%s)", [quoted(NOTES)]).fetchone()[0] is None:
                    connection.execute(
                        f"create table if not exists {NOTES} (app text not null, checkpoint bigint not null, digest text not null, "
                        "committed_at timestamptz not null default now(), primary key (app, checkpoint))"
                    )
        except psycopg.errors.UniqueViolation:
            return  # another session created the table at the same time
        except psycopg.Error as error:
            raise self._sink.server.explained(SinkError, f"table {NOTES!r} cannot be created", error) from error

    def _connect(self) -> Any:
        connection = super()._connect()
        # The role may have another default isolation level. In READ COMMITTED, the query for notes sees all commits from before the lock.
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
        write_rows(self._connection, self._sink, batches)

    def _note(self, app: str, checkpoint: int, digest: str) -> None:
        self._connection.execute(
            f"insert into {NOTES} (app, checkpoint, digest) values (%s, %s, %s)", [app, checkpoint, digest]
        )
        self._connection.execute(
            f"delete from {NOTES} where app = %s and checkpoint >= 0 and checkpoint < (select min(checkpoint) from "
            f"(select checkpoint from {NOTES} where app = %s order by checkpoint desc limit {commits.KEPT}) kept)",
            [app, app],
        )

    def interrupt(self) -> None:
        """Cancel a statement that does not return."""
        connection = self._connection
        if connection is not None:
            connection.cancel_safe(timeout=2.0)
