"""Options under PyFlink's names: where the database is, and how records are batched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from penstock.common.errors import InvalidJob


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """`driver_name` says nothing here: the URL tells the database."""

    url: str = field(repr=False)
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str = ""

    def get_db_url(self) -> str:
        return self.url

    def get_driver_name(self) -> str | None:
        return self.driver_name

    def get_user_name(self) -> str | None:
        return self.user_name

    def get_password(self) -> str | None:
        return self.password

    class JdbcConnectionOptionsBuilder:
        def __init__(self) -> None:
            self._url = ""
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None
            self._password_file = ""

        def with_url(self, url: str) -> Self:
            """JDBC's ("jdbc:mysql://host:3306/db") or SQLAlchemy's."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> Self:
            """A Java class, which is not needed."""
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> Self:
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> Self:
            """Goes with the program; see `with_password_file`."""
            self._password = password
            return self

        def with_password_file(self, password_file: str) -> Self:
            """A file with the password, read at every connection; not PyFlink's."""
            self._password_file = password_file
            return self

        def build(self) -> JdbcConnectionOptions:
            """
            Raises:
                InvalidJob: there is no URL.
            """
            if not self._url:
                raise InvalidJob("JdbcConnectionOptions without a URL", remedy="with_url('jdbc:mysql://host:3306/db')")
            return JdbcConnectionOptions(
                self._url, self._driver_name, self._user_name, self._password, self._password_file
            )


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """Flink's defaults: batches of 5,000, at checkpoints whatever there is, three retries."""

    batch_interval_ms: int = 0
    batch_size: int = 5_000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        return self.batch_size

    def get_max_retries(self) -> int:
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        return JdbcExecutionOptions.Builder()

    class Builder:
        def __init__(self) -> None:
            self._interval_ms = 0
            self._size = 5_000
            self._max_retries = 3

        def with_batch_size(self, size: int) -> Self:
            self._size = size
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> Self:
            """0: no record waits for time, only for others and for checkpoints."""
            self._interval_ms = interval_ms
            return self

        def with_max_retries(self, max_retries: int) -> Self:
            self._max_retries = max_retries
            return self

        def build(self) -> JdbcExecutionOptions:
            """
            Raises:
                InvalidJob: a number is out of its range.
            """
            if self._size < 0 or self._interval_ms < 0 or self._max_retries < 0:
                raise InvalidJob(
                    f"batch_size={self._size}, batch_interval_ms={self._interval_ms}, max_retries={self._max_retries}",
                    remedy="none is less than 0",
                )
            return JdbcExecutionOptions(self._interval_ms, self._size, self._max_retries)
