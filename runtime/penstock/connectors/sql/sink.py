"""`SqlSink`: rows into a table.

SqlSink("mysql+pymysql://job@db/weather", "means", {"station": str, "hour": int, "celsius": float}, key=["station", "hour"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.commits import app_of
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.sql.commits import NOTES
from penstock.connectors.sql.committer import SqlCommitter, check_transactions
from penstock.connectors.sql.databases import MySql
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.statements import Statements
from penstock.connectors.sql.tables import Table, check_fields, engine_of, look_up
from penstock.connectors.sql.writer import CheckedStagingWriter, DirectWriter


class SqlSink(Sink):
    """
    Args:
        url: SQLAlchemy's; see the package.
        table: "table" or "schema.table".
        fields: what records have, by the columns' names (see `formats.shape`); nested fields go as JSON.
        key: columns by which a row replaces one that is there; the table needs a primary key or unique index of just these. Empty: rows are added.
        deletes: records are `Row`s of a table that changes: DELETE removes the row with this key, UPDATE_BEFORE is left out. Rows of one key must come to one
            subtask, in order (`key_by`).
        guarantee: EXACTLY_ONCE, or AT_LEAST_ONCE.
        password_file: holds the password; read at every connection.
        batch_rows: at least once, rows are written when there are so many,
        batch_time: or when they have waited so long, and at every checkpoint.
    """

    def __init__(
        self,
        url: str,
        table: str,
        fields: Declaration,
        *,
        key: Sequence[str] = (),
        deletes: bool = False,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
        password_file: str = "",
        batch_rows: int = 5_000,
        batch_time: TimeLike = 1_000,
    ) -> None:
        package()
        if guarantee not in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
            raise InvalidJob(f"a sink into a database with {guarantee}", remedy="EXACTLY_ONCE, or AT_LEAST_ONCE")
        self.server = Server(url, password_file)
        self.dialect = str(self.server.parsed().get_backend_name())
        self.table = table
        self.shape = RecordShape.of(fields)
        self.key = tuple(key)
        self.deletes = deletes
        if deletes and not key:
            raise InvalidJob("deletes=True without a key", remedy="name the columns by which rows are found: key=[…]")
        self.guarantee = guarantee
        self.batch_rows = batch_rows
        self.batch_ms = as_millis(batch_time, "batch_time")
        strange = [name for name in self.key if name not in self.shape.names]
        if strange:
            raise InvalidJob(
                f"key={list(key)} of the fields {', '.join(self.shape.names)}", remedy="name fields of the records"
            )

    @property
    def _is_exact(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        if self._is_exact:
            return CheckedStagingWriter(self, app_of(context.job_id, context.uid), context.subtask)
        return DirectWriter(self)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self._is_exact:
            return None
        committer = SqlCommitter(self)
        committer.prepare()
        return committer

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if self._is_exact and not interval_ms and not bounded:
            raise InvalidJob(
                "exactly once into a database without checkpoints: nothing would ever be committed",
                remedy="env.enable_checkpointing(1000), or DeliveryGuarantee.AT_LEAST_ONCE",
            )

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the fields do not fit the table.
            SinkError: the server does not answer or does not let us, or there is no such table, key or right.
        """
        connection = self.server.connect(SinkError, autocommit=True)
        try:
            table = look_up(connection, self.server, self.table, SinkError)
            check_fields(self.shape.schema, table, writes=True)
            if self.key:
                self._check_key(table)
            self._check_rights(connection)
            if self._is_exact:
                check_transactions(self.server, table.sql, table.engine)
                self._check_notes(connection)
        finally:
            connection.close()

    def _check_key(self, table: Table) -> None:
        if frozenset(self.key) not in table.unique:
            raise SinkError(
                f"{self.server.shown}: {table.sql} has no primary key or unique index (of columns that are NOT NULL) of just "
                f"{', '.join(self.key)}",
                remedy="add one, or name the columns of the one that there is as key",
            )
        if not isinstance(self.server.database, MySql):
            return
        if frozenset(self.key) in table.cut:
            raise SinkError(
                f"{self.server.shown}: {table.sql} has a unique index of the beginnings of {', '.join(self.key)} alone: a row would replace "
                "one with another key that begins as its own",
                remedy="let the index have the whole columns",
            )
        for other in table.any_unique:
            ours = set(self.shape.names)
            if other != frozenset(self.key) and not any(
                table.columns[name].counts and name not in ours for name in other
            ):
                raise SinkError(
                    f"{self.server.shown}: {table.sql} has another unique index, of {', '.join(sorted(other))}: a row that is equal "
                    f"in it would replace one with another key, for ON DUPLICATE KEY UPDATE goes by all of them",
                    remedy="drop that index, or name its columns as key",
                )

    def _check_rights(self, connection: Any) -> None:
        database, names = self.server.database, self.shape.names
        statements = Statements.of(connection, database, self.table, names, self.key, mark="?")
        probed = [(statements.insert, len(names))]
        if self.deletes:
            probed.append((statements.delete(1), len(self.key)))
        try:
            for (
                statement,
                values,
            ) in probed:  # names have a % twice, as drivers want it that replace marks by themselves
                database.probe(connection, statement.replace("%%", "%") if database.mark == "%s" else statement, values)
            with self.server.connect(SinkError) as rehearsal:  # and takes it back
                rehearsal.exec_driver_sql(statements.insert_none(database.no_rows(len(names))))
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.server.explained(SinkError, f"table {self.table!r} cannot be written to", error) from error

    def _check_notes(self, connection: Any) -> None:
        """Whether rows can be noted, or the table be made by who starts the job."""
        database, errors = self.server.database, package("sqlalchemy.exc").DBAPIError
        try:
            if package().inspect(connection).has_table(NOTES):
                check_transactions(self.server, NOTES, engine_of(connection, NOTES))
                tail = database.instead(["app", "checkpoint"], ["digest"])
                values = f"values (?, ?, ?, {database.now}) {tail}"
                database.probe(connection, f"insert into {NOTES} (app, checkpoint, digest, committed_at) {values}", 3)
                database.probe(connection, f"delete from {NOTES} where app = ?", 1)
                database.probe(connection, f"select digest from {NOTES} where app = ?", 1)
            else:
                database.probe_notes(connection)
        except errors as error:
            told = self.server.explained(
                SinkError, f"table {NOTES!r}, in which exactly once notes what was written", error
            )
            told.remedy = f"let another user make it, and GRANT SELECT, INSERT, UPDATE, DELETE on it to the job's: {database.notes_table}"
            raise told from error
