"""`PostgresSink`: writes rows into a table.

PostgresSink("postgresql://job@db/weather", "means", {"station": str, "hour": int, "celsius": float}, key=["station", "hour"])
"""

from __future__ import annotations

from typing import Any, Unpack

from penstock.common.errors import SinkError
from penstock.connectors.formats.shape import Declaration
from penstock.connectors.postgres.client import Server, Table, check_rights, look_up, package, quoted
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.connectors.postgres.fitting import check_fields
from penstock.connectors.postgres.settings import PostgresSinkSettings
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.postgres.writer import PostgresWriter
from penstock.connectors.tables.commits import NOTES
from penstock.connectors.tables.settings import TableSinkOptions
from penstock.connectors.tables.sink import TableSink

_SEQUENCES = """
select s.oid::regclass::text from pg_attrdef f join pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = f.oid and d.refclassid = 'pg_class'::regclass
join pg_class s on s.oid = d.refobjid
where f.adrelid = to_regclass(%s) and a.attname = any(%s) and case when s.relkind = 'S' then not has_sequence_privilege(s.oid, 'USAGE') end"""


class PostgresSink(PostgresSinkSettings, TableSink):
    """Sink that writes records as rows of a table.

    Args:
        conninfo: connection string of libpq; see the package.
        table: "table" or "schema.table".
        fields: the fields of the records, by the names of the columns (see `formats.shape`). Nested fields are written into json columns.
        password_file: file with the password, read at every connection.
        options: the options of all databases: `key`, `deletes`, `guarantee`, `batch_rows`, `batch_time`.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        fields: Declaration,
        *,
        password_file: str = "",
        **options: Unpack[TableSinkOptions],
    ) -> None:
        package()
        super().__init__(table, fields, **options)
        self.server = Server(conninfo, password_file)

    def _direct_writer(self) -> PostgresWriter:
        return PostgresWriter(self)

    def _committer(self) -> PostgresCommitter:
        return PostgresCommitter(self)

    def validate(self) -> None:
        """Check the connection, the table and the user's rights.

        Raises:
            InvalidJob: the fields do not fit the table.
            SinkError: the server does not respond or refuses the user, or the table, key or a right is missing.
        """
        with self.server.connect(SinkError, autocommit=True) as connection:
            table = look_up(connection, self.server, self.table, SinkError)
            replaces = ["SELECT", "UPDATE"] if self.key else []
            check_rights(table, ["INSERT", *replaces, *(["DELETE"] if self.deletes else [])], self.server, SinkError)
            check_fields(self.shape.schema, table, writes=True)
            self._check_index(table, table.arbiters, "of NOT NULL columns, not deferrable")
            self._check_sequences(connection, table)
            if self.is_exactly_once:
                self._check_notes(connection)
            self._rehearse(connection)

    def _rehearse(self, connection: Any) -> None:
        """Write no rows in a transaction that is rolled back.

        The server then reports problems with views, policies, deferred keys or its read-only mode.
        """
        psycopg = package()
        try:
            with connection.transaction(force_rollback=True):
                connection.execute("set local lock_timeout = '5s'")
                write_rows(connection, self, [])
        except psycopg.errors.LockNotAvailable:
            return  # another session alters the table now; the lock is temporary
        except psycopg.Error as error:
            problem = f"rows cannot be written to {self.table!r}"
            raise self.server.explained(SinkError, problem, error) from error

    def _check_sequences(self, connection: Any, table: Table) -> None:
        """Check the user's right to the sequences of columns that the job does not write."""
        columns_with_defaults = [name for name in table.columns if name not in self.shape.names]
        missing = [row[0] for row in connection.execute(_SEQUENCES, [quoted(self.table), columns_with_defaults])]
        if missing:
            raise SinkError(
                f"{self.server.shown}: {table.sql} takes values from {', '.join(missing)}, but the user has no right to use these sequences",
                remedy=f"GRANT USAGE ON SEQUENCE {', '.join(missing)} TO the job's user",
            )

    def _check_notes(self, connection: Any) -> None:
        if connection.execute("select to_regclass(%s)", [quoted(NOTES)]).fetchone()[0] is not None:
            check_rights(
                look_up(connection, self.server, NOTES, SinkError),
                ["SELECT", "INSERT", "DELETE"],
                self.server,
                SinkError,
            )
        elif not connection.execute("select has_schema_privilege(current_schema(), 'CREATE')").fetchone()[0]:
            raise SinkError(
                f"{self.server.shown}: the user may not create the table {NOTES!r}, which the exactly-once sink needs",
                remedy=f"create it as another user and grant SELECT, INSERT, DELETE on it: create table {NOTES} (app text not null, checkpoint "
                "bigint not null, digest text not null, committed_at timestamptz not null default now(), primary key (app, checkpoint))",
            )
