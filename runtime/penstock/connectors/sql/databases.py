"""Differences between databases: the start of a session, the meaning of errors, and the syntax of upserts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.connectors.postgres.client import ALIVE
from penstock.connectors.sql.marks import with_marks
from penstock.connectors.tables.commits import NOTES

CONNECT_S = 10
READ_S = 45
"""Timeout of a statement in seconds. It is longer than `LOCK_S`, so that the wait for a lock times out before the statement."""
LOCK_S = 20


_EXPLAINED = re.compile(r"\s*(insert|update|delete|merge|select|with|values)\b", re.IGNORECASE)
"""Statements that Postgres can EXPLAIN. Postgres cannot explain CALL."""


class Database(ABC):
    """One kind of database."""

    mark = "%s"
    """The driver's placeholder for a value."""
    notes_table = ""
    """Statement that creates the table of notes."""
    now = ""
    """SQL for the server's time, in the type of the column `committed_at`."""
    noted_ms = "committed_at"
    """SQL for the column `committed_at` in ms."""

    def connect_arguments(self, read_s: int, driver: str) -> dict[str, Any]:
        """Return arguments for the driver. Parameters of the URL override them."""
        return {}

    def begin_session(self, connection: Any) -> None:  # noqa: B027 - most databases need no settings
        """Set the session variables of a new connection."""

    @abstractmethod
    def is_lost(self, error: Any) -> bool:
        """Return whether a retry may succeed after this error of the driver, because the server was lost or busy.

        Any other error means that the statement or a row is wrong.
        """

    def remedy(self, error: Any) -> str | None:
        """Return what the user must do, or None if the error does not tell the cause."""
        return None

    @abstractmethod
    def instead(self, key: Sequence[str], changed: Sequence[str]) -> str:
        """Return the end of an INSERT whose rows replace the rows with the same key. Names are quoted."""

    @abstractmethod
    def probe(self, connection: Any, statement: str, values: int) -> None:
        """Let the server check a statement and the user's right to execute it, without executing it.

        Args:
            statement: the statement, with a `?` for each value.
            values: number of values.
        """

    def no_rows(self, values: int) -> str:
        """Return a query without rows, for an INSERT that only tests whether the server accepts writes.

        Args:
            values: number of columns.
        """
        return f"select {', '.join(['null'] * values)} where 1 = 0"

    def probe_notes(self, connection: Any) -> None:
        """Check that the user may create the table of notes."""
        self.probe(connection, self.notes_table, 0)

    def interrupt(self, connection: Any, another: Any) -> None:
        """Cancel the statement that runs on a connection, from another thread.

        Args:
            another: a function that returns a new connection.
        """
        with suppress(Exception):
            connection.connection.dbapi_connection.close()


class MySql(Database):
    """MySQL and MariaDB, with PyMySQL or mysqlclient."""

    notes_table = (
        f"create table if not exists {NOTES} (app varchar(255) character set utf8mb4 collate utf8mb4_bin not null, checkpoint bigint not null, "
        "digest varchar(64) not null, committed_at bigint not null, primary key (app, checkpoint)) engine = InnoDB"
    )
    now = "cast(unix_timestamp(now(3)) * 1000 as unsigned)"
    _BUSY = frozenset(
        {
            1020,
            1021,
            1028,
            1030,
            1040,
            1042,
            1047,
            1053,
            1077,
            1079,
            1114,
            1129,
            1152,
            1158,
            1159,
            1160,
            1161,
            1184,
            1189,
            1190,
            1203,
        }
        | {1180, 1205, 1206, 1213, 1218, 1226, 1290, 1317, 1412, 1637, 1792, 1836, 1927, 1969, 3024, 3169, 4031}
    )
    """Codes for: shutdown, read only, too many connections, disk full, deadlock, timeout of a lock, killed connection."""

    def connect_arguments(self, read_s: int, driver: str) -> dict[str, Any]:
        if driver not in ("pymysql", "mysqldb"):
            return {}
        arguments = {
            "connect_timeout": CONNECT_S,
            "read_timeout": read_s,
            "write_timeout": read_s,
            "charset": "utf8mb4",
        }
        return {**arguments, "binary_prefix": True} if driver == "pymysql" else arguments

    def begin_session(self, connection: Any) -> None:
        # Without strict mode the server truncates values that do not fit and reports no error. NO_AUTO_VALUE_ON_ZERO keeps a 0
        # in an AUTO_INCREMENT column. Times without a time zone are in UTC.
        connection.exec_driver_sql(
            "set session sql_mode = concat(@@session.sql_mode, ',STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO'), "
            f"session time_zone = '+00:00', session innodb_lock_wait_timeout = {LOCK_S}"
        )
        number, most = connection.exec_driver_sql("select connection_id(), @@max_allowed_packet").one()
        connection.info.update(penstock_number=int(number), penstock_most_bytes=int(most))
        raw = connection.connection.dbapi_connection
        if connection.dialect.driver == "pymysql" and most < 2 * raw.cursorclass.max_stmt_length:
            raw.cursorclass = type("Cursor", (raw.cursorclass,), {"max_stmt_length": int(most) // 2})

    def is_lost(self, error: Any) -> bool:
        code = error.args[0] if error.args else None
        if isinstance(code, int) and code:
            return code in self._BUSY or 2000 <= code < 3000
        return type(error).__name__ in ("InterfaceError", "InternalError", "OperationalError")

    def remedy(self, error: Any) -> str | None:
        code = error.args[0] if error.args else None
        if code in (1045, 1698, 1130, 1251, 2059):
            return "check user and password (password_file), and that the account may connect from this host"
        if code == 1049:
            return "create the database, or name another one in the URL"
        if code in (1044, 1142, 1143, 1227, 1370):
            return "GRANT this right to the job's user"
        if code in (1040, 1203, 1226):
            return "raise max_connections of the server (the job needs one for each subtask, and one more)"
        if code in (1021, 1030, 1114):
            return "free space on the server's disk"
        if code in (1290, 1792, 1836):
            return "name the server that accepts writes, not a replica, and check its read_only setting"
        if code in (1054, 1064, 1136, 1146):
            return "correct the statement, or create the table and columns that it names"
        return None

    def instead(self, key: Sequence[str], changed: Sequence[str]) -> str:
        names = changed or key[:1]
        return "on duplicate key update " + ", ".join(f"{name} = values({name})" for name in names)

    def probe(self, connection: Any, statement: str, values: int) -> None:
        connection.exec_driver_sql("prepare penstock_probe from %s", (statement,))
        connection.exec_driver_sql("deallocate prepare penstock_probe")

    def no_rows(self, values: int) -> str:
        return super().no_rows(values).replace(" where", " from dual where")

    def interrupt(self, connection: Any, another: Any) -> None:
        with suppress(Exception):
            number = connection.info["penstock_number"]
            killer = another()
            killer.exec_driver_sql(f"kill {number}")
            killer.close()


class Sqlite(Database):
    mark = "?"
    notes_table = (
        f"create table if not exists {NOTES} (app text not null, checkpoint bigint not null, digest text not null, "
        "committed_at bigint not null, primary key (app, checkpoint))"
    )
    now = "cast((julianday('now') - 2440587.5) * 86400000 as integer)"
    _BUSY = frozenset({5, 6, 9, 10, 13, 14, 15})
    """SQLITE_BUSY, LOCKED, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL."""

    def connect_arguments(self, read_s: int, driver: str) -> dict[str, Any]:
        # One thread may connect, and another thread may read and close. Two threads never use a connection at the same time.
        return {"timeout": LOCK_S, "check_same_thread": False}

    def is_lost(self, error: Any) -> bool:
        return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in self._BUSY

    def remedy(self, error: Any) -> str | None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == 14:
            return "check that the file's folder exists on every machine of the job and is writable"
        if code == 8:
            return "give the job's user write access to the file and its folder"
        if code in (5, 6):
            return "find the program that keeps the file locked, or use a database with a server"
        return None

    def instead(self, key: Sequence[str], changed: Sequence[str]) -> str:
        sets = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return f"on conflict ({', '.join(key)}) do " + (f"update set {sets}" if sets else "nothing")

    def probe(self, connection: Any, statement: str, values: int) -> None:
        connection.exec_driver_sql(f"explain {statement}", (None,) * values)

    def interrupt(self, connection: Any, another: Any) -> None:
        with suppress(Exception):
            connection.connection.dbapi_connection.interrupt()


class PostgreSql(Database):
    """Postgres with psycopg 3."""

    notes_table = (
        f"create table if not exists {NOTES} (app text not null, checkpoint bigint not null, digest text not null, "
        "committed_at timestamptz not null default now(), primary key (app, checkpoint))"
    )
    now = "now()"
    noted_ms = "extract(epoch from committed_at) * 1000"

    def connect_arguments(self, read_s: int, driver: str) -> dict[str, Any]:
        if driver != "psycopg":
            return {}
        return {"connect_timeout": CONNECT_S, "application_name": "penstock", **ALIVE}

    def begin_session(self, connection: Any) -> None:
        connection.exec_driver_sql("set time zone 'UTC'")
        connection.exec_driver_sql(f"set lock_timeout = '{LOCK_S}s'")

    def is_lost(self, error: Any) -> bool:
        return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)

    def remedy(self, error: Any) -> str | None:
        code, text = getattr(error, "sqlstate", None) or "", str(error)
        if "password" in text or "authentication" in text or "pg_hba" in text:
            return "check user and password (password_file), and that pg_hba.conf accepts this user from this host"
        if "does not exist" in text and "database" in text:
            return "create the database, or name another one in the URL"
        if code == "42501":
            return "GRANT this right to the job's user"
        if code == "25006":
            return "name the server that accepts writes, not a replica (target_session_attrs=read-write)"
        if code.startswith("42"):
            return "correct the statement, or create the table and columns that it names"
        return "free space on the server's disk, or raise max_connections" if code.startswith("53") else None

    def instead(self, key: Sequence[str], changed: Sequence[str]) -> str:
        return Sqlite().instead(key, changed)

    def probe(self, connection: Any, statement: str, values: int) -> None:
        if _EXPLAINED.match(statement):
            connection.exec_driver_sql(f"explain {with_marks(statement, '%s', 'postgresql')}", (None,) * values)

    def probe_notes(self, connection: Any) -> None:
        connection.exec_driver_sql(
            "do $$ begin if not has_schema_privilege(current_schema(), 'CREATE') then raise insufficient_privilege "
            "using message = 'permission denied to create a table in schema ' || current_schema(); end if; end $$"
        )

    def interrupt(self, connection: Any, another: Any) -> None:
        with suppress(Exception):
            connection.connection.dbapi_connection.cancel_safe(timeout=2.0)


class Other(Database):
    """A database for which the user writes the statements.

    Values have names. SQLAlchemy translates them to the driver's placeholders.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def is_lost(self, error: Any) -> bool:
        return any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__)

    def instead(self, key: Sequence[str], changed: Sequence[str]) -> str:
        raise InvalidJob(
            f"the SQL connector has no upserts for {self.name}",
            remedy="use MySQL, MariaDB, SQLite or Postgres, or write the statement yourself with JdbcSink",
        )

    def probe(self, connection: Any, statement: str, values: int) -> None:
        return


KNOWN: dict[str, Database] = {"mysql": MySql(), "mariadb": MySql(), "sqlite": Sqlite(), "postgresql": PostgreSql()}
"""Databases by the name of their dialect in SQLAlchemy."""
