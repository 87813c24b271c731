"""`SqlSink`: writes rows into a table.

SqlSink("mysql+pymysql://job@db/weather", "means", {"station": str, "hour": int, "celsius": float}, key=["station", "hour"])
"""

from __future__ import annotations

from typing import Any, Unpack

from penstock.common.errors import SinkError
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.sql.committer import SqlCommitter, check_transactions
from penstock.connectors.sql.databases import MySql
from penstock.connectors.sql.server import Server, package
from penstock.connectors.sql.settings import SqlSinkSettings
from penstock.connectors.sql.statements import Statements
from penstock.connectors.sql.tables import Table, check_fields, engine_of, look_up
from penstock.connectors.sql.writer import SqlWriter
from penstock.connectors.tables.commits import NOTES
from penstock.connectors.tables.settings import TableSinkOptions
from penstock.connectors.tables.sink import TableSink


class SqlSink(SqlSinkSettings, TableSink):
    """Sink that writes records as rows of a table.

    Args:
        url: SQLAlchemy URL; see the package.
        table: "table" or "schema.table".
        fields: the fields of the records, by the names of the columns (see `formats.shape`). Nested fields are written as JSON.
        password_file: file with the password, read at every connection.
        options: the options of all databases: `key`, `deletes`, `guarantee`, `batch_rows`, `batch_time`.
    """

    def __init__(
        self, url: str, table: str, fields: Declaration, *, password_file: str = "", **options: Unpack[TableSinkOptions]
    ) -> None:
        package()
        super().__init__(table, fields, **options)
        self.server = Server(url, password_file)
        self.dialect = str(self.server.parsed().get_backend_name())

    def _direct_writer(self) -> SqlWriter:
        return SqlWriter(self)

    def _committer(self) -> SqlCommitter:
        return SqlCommitter(self)

    def validate(self) -> None:
        """Check the connection, the table and the user's rights.

        Raises:
            InvalidJob: the fields do not fit the table.
            SinkError: the server does not respond or refuses the user, or the table, key or a right is missing.
        """
        with self.server.session(SinkError) as connection:
            table = look_up(connection, self.server, self.table, SinkError)
            check_fields(self.shape.schema, table, writes=True)
            if self.key:
                self._check_key(table)
            self._check_rights(connection)
            if self.is_exactly_once:
                check_transactions(self.server, table.sql, table.engine)
                self._check_notes(connection)

    def _check_key(self, table: Table) -> None:
        self._check_index(table, table.unique, "of NOT NULL columns")
        if not isinstance(self.server.database, MySql):
            return
        if frozenset(self.key) in table.cut:
            raise SinkError(
                f"{self.server.shown}: {table.sql} has a unique index on prefixes of {', '.join(self.key)}. "
                "A row would replace a row with another key that has the same prefix",
                remedy="create the index on the whole columns",
            )
        for other in table.any_unique:
            ours = set(self.shape.names)
            if other != frozenset(self.key) and not any(
                table.columns[name].counts and name not in ours for name in other
            ):
                raise SinkError(
                    f"{self.server.shown}: {table.sql} has another unique index, of {', '.join(sorted(other))}. "
                    f"ON DUPLICATE KEY UPDATE uses all unique indexes, so a row could replace a row with another key",
                    remedy="drop that index, or name its columns as key",
                )

    def _check_rights(self, connection: Any) -> None:
        database, names = self.server.database, self.shape.names
        statements = Statements.of(connection, self, mark="?")
        probed = [(statements.insert, len(names))]
        if self.deletes:
            probed.append((statements.delete(1), len(self.key)))
        try:
            for statement, values in probed:
                # Drivers with the mark %s replace the placeholders themselves, so names contain %% for %.
                database.probe(connection, statement.replace("%%", "%") if database.mark == "%s" else statement, values)
            with self.server.connect(SinkError) as rehearsal:  # the INSERT is rolled back
                rehearsal.exec_driver_sql(statements.insert_none(database.no_rows(len(names))))
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.server.explained(SinkError, f"table {self.table!r} cannot be written to", error) from error

    def _check_notes(self, connection: Any) -> None:
        """Check that the user may write notes, or create the table of notes."""
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
            explained = self.server.explained(SinkError, f"the exactly-once sink cannot use its table {NOTES!r}", error)
            explained.remedy = (
                "let another user create the table, and GRANT SELECT, INSERT, UPDATE, DELETE on it to the job's user: "
                f"{database.notes_table}"
            )
            raise explained from error
