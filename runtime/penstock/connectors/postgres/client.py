"""Connections, tables and errors of Postgres, as sink and source need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.extras import module_of_extra
from penstock.common.secret_file import read_secret

CONNECT_S = 10
SETTINGS = """
set time zone 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; set extra_float_digits = 3; set bytea_output = 'hex';
set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3"""
"""Times without a zone are of UTC here, and values are written as the log of changes has them, whatever the role or the server has set. The server sees within a
minute that this machine is gone, and lets go of its locks."""
ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""And so does libpq of the server's."""
_INTEGERS = ("int2", "int4", "int8")


def package(name: str = "psycopg") -> Any:
    return module_of_extra(name, "postgres", "Postgres")


@dataclass(frozen=True)
class Server:
    """Where, and as whom. Picklable; holds no password but what `conninfo` itself has."""

    conninfo: str
    password_file: str = ""

    def connect(self, kind: type[PlatformError], *, autocommit: bool = False) -> Any:
        """A connection.

        Raises:
            PlatformError: of this kind: the server does not answer, or does not let us; says what to do.
        """
        psycopg = package()
        try:
            connection = psycopg.connect(self.conninfo, autocommit=True, **self.options(kind))
            connection.execute(SETTINGS)
            connection.autocommit = autocommit
            return connection
        except psycopg.ProgrammingError as error:
            raise InvalidJob(
                f"conninfo of Postgres cannot be understood: {error}",
                remedy="write 'postgresql://user@host:5432/database'",
            ) from error
        except psycopg.Error as error:
            raise self.explained(kind, "cannot connect", error) from error

    def options(self, kind: type[PlatformError]) -> dict[str, Any]:
        """Beside `conninfo`, whose own go first, with the password as its file has it now.

        Raises:
            PlatformError: of this kind: the file cannot be read.
        """
        said = package("psycopg.conninfo").conninfo_to_dict(self.conninfo)
        given: dict[str, Any] = {"connect_timeout": CONNECT_S, "application_name": "penstock", **ALIVE}
        given = {name: value for name, value in given.items() if name not in said}
        if self.password_file:
            given["password"] = read_secret(self.password_file, "password_file", kind)
        return given

    @property
    def shown(self) -> str:
        """Host and database, without user and password."""
        try:
            told = package("psycopg.conninfo").conninfo_to_dict(self.conninfo)
        except Exception:  # whatever it cannot read
            return "Postgres"
        return f"Postgres {told.get('host', 'localhost')}:{told.get('port', 5432)}/{told.get('dbname', '')}"

    def explained(self, kind: type[PlatformError], what: str, error: Exception) -> PlatformError:
        text = " ".join(str(error).split())[:1000]
        return kind(f"{self.shown}: {what}: {text}", remedy=_remedy(error, text))


def is_lost(error: Exception) -> bool:
    """Whether the server may do it another time: it was gone, busy or has handed over to another; else the statement or a row is wrong."""
    psycopg = package()
    ended = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, *ended))


_NO_ROOM = ("too many clients", "too many connections", "remaining connection slots", "max_wal_senders")
"""In what a server says that refuses a connection, without a code."""


def _remedy(error: Exception, text: str) -> str:
    errors = package("psycopg.errors")
    if any(words in text for words in _NO_ROOM):
        return (
            "give the server room: max_connections or the role's limit (one for each subtask, and one), max_wal_senders"
        )
    if any(words in text for words in ("password", "authentication", "pg_hba", "not permitted to log in")):
        return "check user and password (password_file), and that pg_hba.conf lets this user in from here"
    if "does not exist" in text and "database" in text:
        return "create the database, or name another one in conninfo"
    if isinstance(error, errors.InsufficientPrivilege):
        return "grant the job's user the right to it"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return "name the server that takes writes: target_session_attrs=read-write in conninfo finds it among several hosts"
    if isinstance(error, errors.QueryCanceled):
        return "raise statement_timeout of the job's user (alter role … set statement_timeout), or let less come at once: checkpoints more often"
    if isinstance(error, errors.DataError | errors.IntegrityError):
        return "correct or filter out such rows before the sink, or let the table take them"
    if isinstance(error, errors.DiskFull | errors.TooManyConnections | errors.ConfigurationLimitExceeded):
        return "give the server room: disk, or max_connections (one for each subtask, and one)"
    if isinstance(error, errors.ProgrammingError | errors.NotSupportedError | errors.ObjectNotInPrerequisiteState):
        return "the server says what it does not take: alter the table, or what the job asks of it"
    return (
        "check that the server runs, host, port, TLS settings and the network; the job tries again when it fails over"
    )


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    """Postgres's own name: int8, timestamptz, …; of a domain, that of what it is made of."""
    required: bool
    """NOT NULL and no default."""
    is_generated: bool
    sql_type: str = ""
    """As SQL takes it."""


@dataclass(frozen=True)
class Table:
    """A table as it is. `sql`: its name, quoted. `unique`: sets of columns that are unique and never null; `arbiters`: those that are so at any moment, not only at the end
    of a transaction."""

    sql: str
    columns: dict[str, Column]
    unique: tuple[frozenset[str], ...]
    arbiters: tuple[frozenset[str], ...]
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
    """
    Raises:
        PlatformError: of this kind: there is no such table, or it cannot be looked at.
    """
    try:
        return _found(connection, server, name, kind)
    except package().Error as error:
        raise server.explained(kind, f"table {name!r} cannot be looked at", error) from error


def _found(connection: Any, server: Server, name: str, kind: type[PlatformError]) -> Table:
    sql = quoted(name)
    found = connection.execute("select to_regclass(%s)::oid", [sql]).fetchone()[0]
    if found is None:
        raise kind(
            f"{server.shown}: there is no table {name!r}",
            remedy="create it, or write 'schema.table' with names as they are (no quotes, capitals as in the table)",
        )
    columns = [Column(*row) for row in connection.execute(_COLUMNS, [found])]
    keys = [(frozenset(names), is_immediate) for names, is_immediate in connection.execute(_UNIQUE, [found])]
    unique = tuple(names for names, _ in keys)
    arbiters = tuple(names for names, is_immediate in keys if is_immediate)
    rights = frozenset(row[0] for row in connection.execute(_RIGHTS, [found]))
    return Table(sql, {column.name: column for column in columns}, unique, arbiters, rights)


def quoted(name: str) -> str:
    """A name of a table or column, as SQL takes it.

    >>> quoted("public.Means")
    '"public"."Means"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def named(name: str) -> str:
    """In a statement with values."""
    return quoted(name).replace("%", "%%")


def check_rights(table: Table, rights: Sequence[str], server: Server, kind: type[PlatformError]) -> None:
    missing = [right for right in rights if right not in table.rights]
    if missing:
        raise kind(
            f"{server.shown}: the user may not {' and '.join(missing)} on {table.sql}",
            remedy=f"GRANT {', '.join(missing)} ON {table.sql} TO the job's user",
        )


def selected(field: pa.Field) -> str:
    """A column of `t` in the type that the program wants, where Python has another one for it (uuid, json, numeric)."""
    name = f"t.{quoted(field.name)}"
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return f"{name}::text"
    return f"{name}::float8" if pa.types.is_floating(field.type) else name


def is_integer(column: Column) -> bool:
    return column.type in _INTEGERS
