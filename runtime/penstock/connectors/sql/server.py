"""Where a database is, connections to it, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.extras import module_of_extra
from penstock.common.secret_file import read_secret
from penstock.connectors.sql.databases import KNOWN, READ_S, Database, Other

_DRIVERS = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg"}
"""Of URLs that name none."""
_EXTRAS = {"pymysql": "penstock[mysql]", "MySQLdb": "mysqlclient", "psycopg": "penstock[postgres]"}


def package(name: str = "sqlalchemy") -> Any:
    return module_of_extra(name, "sql", "a database by SQLAlchemy")


@dataclass(frozen=True)
class Server:
    """Where, and as whom. Picklable; holds no password but what `url` itself has.

    `any_database`: also one that no connector knows, for statements of the user's own.
    """

    url: str = field(repr=False)
    password_file: str = ""
    any_database: bool = False

    def parsed(self) -> Any:
        """SQLAlchemy's URL, with a driver.

        Raises:
            InvalidJob: it is none, or one of a database that is not known.
        """
        try:
            url = package().make_url(self.url)
            if url.drivername in _DRIVERS:
                url = url.set(drivername=_DRIVERS[url.drivername])
            name = url.get_backend_name()
        except (package("sqlalchemy.exc").ArgumentError, ValueError):
            raise InvalidJob(
                "the URL of a database cannot be understood",
                remedy="write SQLAlchemy's: 'mysql+pymysql://user@host:3306/database'",
            ) from None  # it may show the password
        if name not in KNOWN and not self.any_database:
            raise InvalidJob(
                f"a database of {name}",
                remedy="MySQL, MariaDB, SQLite and Postgres are known here; write to another one with JdbcSink and its SQLAlchemy URL",
            )
        if name == "sqlite" and url.database in (None, "", ":memory:"):
            raise InvalidJob("SQLite in memory, of which each connection has its own", remedy="name a file")
        return url

    @property
    def database(self) -> Database:
        url = self.parsed()
        return KNOWN.get(url.get_backend_name()) or Other(url.get_backend_name())

    @property
    def shown(self) -> str:
        """Database and host, without user and password."""
        try:
            url = self.parsed()
        except InvalidJob:
            return "the database"
        name = url.get_backend_name()
        return (
            f"{name} {url.database}" if name == "sqlite" else f"{name} {url.host}:{url.port or ''}/{url.database or ''}"
        )

    def authenticated(self, kind: type[PlatformError]) -> Any:
        """The URL, with the password as its file has it now.

        Raises:
            PlatformError: of this kind: the file cannot be read.
        """
        url = self.parsed()
        return url.set(password=read_secret(self.password_file, "password_file", kind)) if self.password_file else url

    def connect(self, kind: type[PlatformError], *, autocommit: bool = False, read_s: int = READ_S) -> Any:
        """A connection of SQLAlchemy's, without a transaction.

        Raises:
            PlatformError: of this kind: the server does not answer, or does not let us; says what to do.
            InvalidJob: the URL is wrong, or its driver is not installed.
        """
        sqlalchemy, url, database = package(), self.authenticated(kind), self.database
        given = database.connect_arguments(read_s, self._made(url.get_driver_name))
        given = {name: value for name, value in given.items() if name not in url.query}
        level = {"isolation_level": "AUTOCOMMIT"} if autocommit and not isinstance(database, Other) else {}
        make: Callable[[], Any] = lambda: sqlalchemy.create_engine(  # noqa: E731
            url, poolclass=package("sqlalchemy.pool").NullPool, connect_args=given, **level
        )
        engine = self._made(make)
        if url.get_backend_name() == "sqlite":
            _begin_explicitly(engine, transactions=not autocommit)
        try:
            connection = engine.connect()
            database.begin_session(connection)
            connection.commit()  # taken back, Postgres would forget what was set
            return connection
        except package("sqlalchemy.exc").DBAPIError as error:
            raise self.explained(kind, "cannot connect", error) from error
        except TypeError as error:  # a parameter that the driver does not take
            raise InvalidJob(f"{self.shown}: {error}", remedy="correct what stands behind '?' in the URL") from error

    def _made(self, make: Callable[[], Any]) -> Any:
        """
        Raises:
            InvalidJob: there is no such dialect or driver.
        """
        try:
            return make()
        except package("sqlalchemy.exc").NoSuchModuleError as error:
            raise InvalidJob(
                f"{self.shown}: {error}",
                remedy="install the package with SQLAlchemy's dialect, also in the job's image",
            ) from error
        except ImportError as error:
            name = error.name or str(error)
            raise InvalidJob(
                f"{self.shown}: the driver {name!r} is not installed: {error}",
                remedy=f"pip install '{_EXTRAS.get(name, name)}', also in the image of the job, or name another driver in the URL",
            ) from error

    def is_lost(self, error: Exception) -> bool | None:
        """Whether another try may succeed; None: it is no error of the database's."""
        if not isinstance(error, package("sqlalchemy.exc").DBAPIError):
            return None
        return bool(error.connection_invalidated) or self.database.is_lost(error.orig)

    def explained(self, kind: type[PlatformError], what: str, error: Exception) -> PlatformError:
        orig = getattr(error, "orig", None) or error
        text = " ".join(str(orig).split())[:1000]
        remedy = self.database.remedy(orig)
        if remedy is None and self.is_lost(error):
            remedy = "check that the server runs, host, port, TLS settings and the network; the job tries again when it fails over"
        return kind(
            f"{self.shown}: {what}: {text}",
            remedy=remedy or "correct or filter out such rows before the sink, or let the table take them",
        )


def let_go(connection: Any) -> None:
    """Of a connection that may be lost: nothing is asked of the server, which takes back what was not committed."""
    if connection is not None:
        with suppress(Exception):
            connection.invalidate()
            connection.close()


def _begin_explicitly(engine: Any, *, transactions: bool) -> None:
    """The driver's own BEGIN comes late, and not before a savepoint."""
    listen = package("sqlalchemy.event").listen

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    listen(engine, "connect", connected)
    if transactions:
        listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
