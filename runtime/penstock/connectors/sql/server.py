"""The address of a database, connections to it, and the meaning of its errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.program.extras import import_extra
from penstock.connectors.sql.databases import KNOWN, READ_S, Database, Other
from penstock.connectors.tables.server import TableServer

_DRIVERS = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg"}
"""Drivers for URLs that name no driver."""
_EXTRAS = {"pymysql": "penstock-streaming[mysql]", "MySQLdb": "mysqlclient", "psycopg": "penstock-streaming[postgres]"}


def package(name: str = "sqlalchemy") -> Any:
    return import_extra(name, "sql", "a database with SQLAlchemy")


@dataclass(frozen=True)
class Server(TableServer):
    """Address and user of a database. It is picklable, and has no password except one within `url`."""

    url: str = field(repr=False)
    password_file: str = ""
    any_database: bool = False
    """Whether the URL may name a database that the connector does not know. The user must write the statements for such a database."""

    def parsed(self) -> Any:
        """Return the SQLAlchemy URL, with a driver.

        Raises:
            InvalidJob: the URL cannot be parsed, or the connector does not know its database.
        """
        try:
            url = package().make_url(self.url)
            if url.drivername in _DRIVERS:
                url = url.set(drivername=_DRIVERS[url.drivername])
            name = url.get_backend_name()
        except (package("sqlalchemy.exc").ArgumentError, ValueError):
            raise InvalidJob(
                "the database URL cannot be parsed",
                remedy="write an SQLAlchemy URL: 'mysql+pymysql://user@host:3306/database'",
            ) from None  # the error may contain the password
        if name not in KNOWN and not self.any_database:
            raise InvalidJob(
                f"the SQL connector does not support the database {name}",
                remedy="use MySQL, MariaDB, SQLite or Postgres, or write to it with JdbcSink and an SQLAlchemy URL",
            )
        if name == "sqlite" and url.database in (None, "", ":memory:"):
            raise InvalidJob("an SQLite database in memory exists only within one connection", remedy="name a file")
        return url

    @property
    def database(self) -> Database:
        url = self.parsed()
        return KNOWN.get(url.get_backend_name()) or Other(url.get_backend_name())

    @property
    def shown(self) -> str:
        """Return database and host for messages, without user and password."""
        try:
            url = self.parsed()
        except InvalidJob:
            return "the database"
        name = url.get_backend_name()
        return (
            f"{name} {url.database}" if name == "sqlite" else f"{name} {url.host}:{url.port or ''}/{url.database or ''}"
        )

    def authenticated(self, kind: type[PlatformError]) -> Any:
        """Return the URL with the current password from the file.

        Raises:
            PlatformError: the file cannot be read. `kind` is the class of the error.
        """
        url = self.parsed()
        return url.set(password=read_secret(self.password_file, "password_file", kind)) if self.password_file else url

    def connect(self, kind: type[PlatformError], *, autocommit: bool = False, read_s: int = READ_S) -> Any:
        """Return an SQLAlchemy connection without a transaction.

        Raises:
            PlatformError: the server does not respond or refuses the user. `kind` is the class of the error.
            InvalidJob: the URL is wrong, or its driver is not installed.
        """
        sqlalchemy, url, database = package(), self.authenticated(kind), self.database
        arguments = database.connect_arguments(read_s, self._call(url.get_driver_name))
        arguments = {name: value for name, value in arguments.items() if name not in url.query}
        level = {"isolation_level": "AUTOCOMMIT"} if autocommit and not isinstance(database, Other) else {}
        make: Callable[[], Any] = lambda: sqlalchemy.create_engine(  # noqa: E731
            url, poolclass=package("sqlalchemy.pool").NullPool, connect_args=arguments, **level
        )
        engine = self._call(make)
        if url.get_backend_name() == "sqlite":
            _begin_explicitly(engine, transactions=not autocommit)
        try:
            connection = engine.connect()
            database.begin_session(connection)
            connection.commit()  # a rollback would reset the session variables in Postgres
            return connection
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.explained(kind, "cannot connect", error) from error
        except TypeError as error:  # the driver does not know a parameter
            raise InvalidJob(f"{self.shown}: {error}", remedy="correct the parameters after '?' in the URL") from error

    def _call(self, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, and explain the error if a package is missing.

        Raises:
            InvalidJob: the dialect or the driver is not installed.
        """
        try:
            return make()
        except package("sqlalchemy.exc").NoSuchModuleError as error:
            raise InvalidJob(
                f"{self.shown}: {error}",
                remedy="install the package with the SQLAlchemy dialect, also in the job's image",
            ) from error
        except ImportError as error:
            name = error.name or str(error)
            raise InvalidJob(
                f"{self.shown}: the driver {name!r} is not installed: {error}",
                remedy=f"pip install '{_EXTRAS.get(name, name)}', also in the job's image, or name another driver in the URL",
            ) from error

    def discard(self, connection: Any) -> None:
        """Drop a connection that may be lost, without a request to the server. The server rolls back its transaction."""
        with suppress(Exception):
            connection.invalidate()
            connection.close()

    def is_lost(self, error: Exception) -> bool | None:
        if not isinstance(error, package("sqlalchemy.exc").DBAPIError):
            return None
        return bool(error.connection_invalidated) or self.database.is_lost(error.orig)

    def explained(self, kind: type[PlatformError], problem: str, error: Exception) -> PlatformError:
        orig = getattr(error, "orig", None) or error
        text = " ".join(str(orig).split())[:1000]
        remedy = self.database.remedy(orig)
        if remedy is None and self.is_lost(error):
            remedy = "check that the server runs, and check host, port, TLS settings and network; the job retries when it fails over"
        return kind(
            f"{self.shown}: {problem}: {text}",
            remedy=remedy or "correct or filter such rows before the sink, or change the table so that it accepts them",
        )


def _begin_explicitly(engine: Any, *, transactions: bool) -> None:
    """Send BEGIN at the start of each transaction. The driver alone would send BEGIN too late, and not before a savepoint."""
    listen = package("sqlalchemy.event").listen

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    listen(engine, "connect", connected)
    if transactions:
        listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
