"""Options under PyFlink's names: the address of the database, and the batches of records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from penstock.common.errors import InvalidJob


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Address and credentials of a database. `driver_name` has no effect, because the URL names the database."""

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
            """Set a JDBC URL ("jdbc:mysql://host:3306/db") or an SQLAlchemy URL."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> Self:
            """Accept the name of a Java class, for compatibility. It has no effect."""
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> Self:
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> Self:
            """Set the password, which becomes part of the program. `with_password_file` avoids this."""
            self._password = password
            return self

        def with_password_file(self, password_file: str) -> Self:
            """Set a file with the password, read at every connection. PyFlink does not have this method."""
            self._password_file = password_file
            return self

        def build(self) -> JdbcConnectionOptions:
            """Return the options.

            Raises:
                InvalidJob: the URL is missing.
            """
            if not self._url:
                raise InvalidJob(
                    "JdbcConnectionOptions has no URL", remedy="call with_url('jdbc:mysql://host:3306/db')"
                )
            return JdbcConnectionOptions(
                self._url, self._driver_name, self._user_name, self._password, self._password_file
            )


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """Batching and retries, with Flink's defaults: batches of 5,000 records, a write at each checkpoint, three retries."""

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
            """Set the maximum age of a batch. 0 means that only a full batch or a checkpoint writes the records."""
            self._interval_ms = interval_ms
            return self

        def with_max_retries(self, max_retries: int) -> Self:
            self._max_retries = max_retries
            return self

        def build(self) -> JdbcExecutionOptions:
            """Return the options.

            Raises:
                InvalidJob: a number is negative.
            """
            if self._size < 0 or self._interval_ms < 0 or self._max_retries < 0:
                raise InvalidJob(
                    f"batch_size={self._size}, batch_interval_ms={self._interval_ms}, max_retries={self._max_retries}: one of them is negative",
                    remedy="set each to at least 0",
                )
            return JdbcExecutionOptions(self._interval_ms, self._size, self._max_retries)
