"""Connections, table definitions and errors of Postgres, for the sink and the sources."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.program.extras import import_extra
from penstock.connectors.tables.columns import ColumnDefinition, TableDefinition
from penstock.connectors.tables.server import TableServer

CONNECT_S = 10
SETTINGS = """
set time zone 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; set extra_float_digits = 3; set bytea_output = 'hex';
set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3"""
"""Settings of each session, which override those of the role and the server.

Times without a time zone are in UTC, and text has the format that the replication log uses. The keepalives let the server
detect within a minute that this machine is lost. The server then releases the session's locks.
"""
ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""Keepalives of libpq, which detect a lost server."""
_INTEGERS = ("int2", "int4", "int8")


def package(name: str = "psycopg") -> Any:
    return import_extra(name, "postgres", "Postgres")


@dataclass(frozen=True)
class Server(TableServer):
    """Address and user of a server. It is picklable, and has no password except one within `conninfo`."""

    patience_s: ClassVar[float] = 3.0
    conninfo: str
    password_file: str = ""

    def connect(self, kind: type[PlatformError], *, autocommit: bool = False) -> Any:
        """Return a new connection.

        Raises:
            PlatformError: the server does not respond or refuses the user. `kind` is the class of the error.
        """
        psycopg = package()
        try:
            connection = psycopg.connect(self.conninfo, autocommit=True, **self.options(kind))
            connection.execute(SETTINGS)
            connection.autocommit = autocommit
            return connection
        except psycopg.ProgrammingError as error:
            raise InvalidJob(
                f"conninfo of Postgres cannot be parsed: {error}",
                remedy="write 'postgresql://user@host:5432/database'",
            ) from error
        except psycopg.Error as error:
            raise self.explained(kind, "cannot connect", error) from error

    def options(self, kind: type[PlatformError]) -> dict[str, Any]:
        """Return the connection options that `conninfo` does not set. The password comes from the password file.

        Raises:
            PlatformError: the file cannot be read. `kind` is the class of the error.
        """
        set_by_user = package("psycopg.conninfo").conninfo_to_dict(self.conninfo)
        options: dict[str, Any] = {"connect_timeout": CONNECT_S, "application_name": "penstock", **ALIVE}
        options = {name: value for name, value in options.items() if name not in set_by_user}
        if self.password_file:
            options["password"] = read_secret(self.password_file, "password_file", kind)
        return options

    @property
    def shown(self) -> str:
        """Return host and database for messages, without user and password."""
        try:
            options = package("psycopg.conninfo").conninfo_to_dict(self.conninfo)
        except Exception:  # conninfo cannot be parsed
            return "Postgres"
        return f"Postgres {options.get('host', 'localhost')}:{options.get('port', 5432)}/{options.get('dbname', '')}"

    def discard(self, connection: Any) -> None:
        with suppress(Exception):  # the connection may be lost
            connection.close()

    def is_lost(self, error: Exception) -> bool | None:
        return is_lost(error) if isinstance(error, package().Error) else None

    def explained(self, kind: type[PlatformError], problem: str, error: Exception) -> PlatformError:
        text = " ".join(str(error).split())[:1000]
        return kind(f"{self.shown}: {problem}: {text}", remedy=_remedy(error, text))


def is_lost(error: Exception) -> bool:
    """Return whether a retry may succeed, because the server was lost or busy, or another server has become the primary.

    Any other error means that the statement or a row is wrong.
    """
    psycopg = package()
    ended = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, *ended))


_NO_ROOM = ("too many clients", "too many connections", "remaining connection slots", "max_wal_senders")
"""Parts of messages with which a server refuses a connection. These errors have no code."""


def _remedy(error: Exception, text: str) -> str:
    errors = package("psycopg.errors")
    if any(words in text for words in _NO_ROOM):
        return "raise max_connections or the role's limit (one for each subtask, and one more), or max_wal_senders"
    if any(words in text for words in ("password", "authentication", "pg_hba", "not permitted to log in")):
        return "check user and password (password_file), and that pg_hba.conf accepts this user from this host"
    if "does not exist" in text and "database" in text:
        return "create the database, or name another one in conninfo"
    if isinstance(error, errors.InsufficientPrivilege):
        return "GRANT this right to the job's user"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "name the server that accepts writes: target_session_attrs=read-write in conninfo finds it among several hosts"
    if isinstance(error, errors.QueryCanceled):
        return "raise statement_timeout of the job's user (alter role … set statement_timeout), or write fewer rows at a time: checkpoint more often"
    if isinstance(error, errors.DataError | errors.IntegrityError):
        return "correct or filter such rows before the sink, or change the table so that it accepts them"
    if isinstance(error, errors.DiskFull | errors.TooManyConnections | errors.ConfigurationLimitExceeded):
        return "free space on the server's disk, or raise max_connections (one for each subtask, and one more)"
    if isinstance(error, errors.ProgrammingError | errors.NotSupportedError | errors.ObjectNotInPrerequisiteState):
        return "the server's message names what it refuses: alter the table, or change the job"
    return (
        "check that the server runs, and check host, port, TLS settings and network; the job retries when it fails over"
    )


@dataclass(frozen=True)
class Table(TableDefinition):
    """The definition of a table.

    The `type` of a column is Postgres's internal name: int8, timestamptz, …. A domain has the name of its base type.
    """

    arbiters: tuple[frozenset[str], ...]
    """Sets of `unique` that Postgres checks at each insert, not only at the end of a transaction. ON CONFLICT accepts only these."""
    rights: frozenset[str]


_COLUMNS = """
select a.attname, coalesce(b.typname, t.typname), a.attnotnull and not a.atthasdef and a.attidentity = '',
  a.attgenerated <> '' or a.attidentity = 'a', format_type(a.atttypid, null)
from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_type b on t.typtype = 'd' and b.oid = t.typbasetype where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
order by a.attnum"""
_UNIQUE = """
select array_agg(a.attname::text), bool_and(i.indimmediate) from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])
where i.indrelid = %s and i.indisunique and i.indpred is null and i.indexprs is null and i.indisvalid
group by i.indexrelid having bool_and(a.attnotnull)"""
_RIGHTS = "select right_ from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) right_ where has_table_privilege(%s::oid, right_)"


def look_up(connection: Any, server: Server, name: str, kind: type[PlatformError]) -> Table:
    """Read the definition of a table.

    Raises:
        PlatformError: the table does not exist, or its definition cannot be read. `kind` is the class of the error.
    """
    try:
        return _found(connection, server, name, kind)
    except package().Error as error:
        raise server.explained(kind, f"the definition of table {name!r} cannot be read", error) from error


def _found(connection: Any, server: Server, name: str, kind: type[PlatformError]) -> Table:
    sql = quoted(name)
    found = connection.execute("select to_regclass(%s)::oid", [sql]).fetchone()[0]
    if found is None:
        raise kind(
            f"{server.shown}: the table {name!r} does not exist",
            remedy="create it, or write 'schema.table' with exact names (no quotes, same upper and lower case)",
        )
    columns = [ColumnDefinition(*row) for row in connection.execute(_COLUMNS, [found])]
    keys = [(frozenset(names), is_immediate) for names, is_immediate in connection.execute(_UNIQUE, [found])]
    unique = tuple(names for names, _ in keys)
    arbiters = tuple(names for names, is_immediate in keys if is_immediate)
    rights = frozenset(row[0] for row in connection.execute(_RIGHTS, [found]))
    return Table(sql, {column.name: column for column in columns}, unique, arbiters, rights)


def quoted(name: str) -> str:
    """Return the name of a table or column, quoted for SQL.

    >>> quoted("public.Means")
    '"public"."Means"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def named(name: str) -> str:
    """Return the quoted name for a statement with placeholders, in which % is written as %%."""
    return quoted(name).replace("%", "%%")


def check_rights(table: Table, rights: Sequence[str], server: Server, kind: type[PlatformError]) -> None:
    missing = [right for right in rights if right not in table.rights]
    if missing:
        raise kind(
            f"{server.shown}: the user may not {' and '.join(missing)} on {table.sql}",
            remedy=f"GRANT {', '.join(missing)} ON {table.sql} TO the job's user",
        )


def selected(field: pa.Field) -> str:
    """Return SQL for a column of `t`, with a cast if the driver would return another type (uuid, json, numeric)."""
    name = f"t.{quoted(field.name)}"
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return f"{name}::text"
    return f"{name}::float8" if pa.types.is_floating(field.type) else name


def is_integer(column: ColumnDefinition) -> bool:
    return column.type in _INTEGERS
