"""A server with tables, and users of it that reconnect after a lost connection."""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar, TypeVar

from penstock.common.errors import PenstockError, PlatformError

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long a request is retried after the server is lost, in seconds. After this time, the job fails over."""
_LONGEST_PAUSE_S = 5.0


class TableServer(ABC):
    """The address of a server, the ways to connect to it, and the meaning of its errors."""

    patience_s: ClassVar[float] = PATIENCE_S
    """How long a subtask retries a request after the server is lost, in seconds."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """Return the name of the server for messages, without user and password."""

    @abstractmethod
    def connect(self, kind: type[PlatformError], *, autocommit: bool = False) -> Any:
        """Return a new connection.

        Raises:
            PlatformError: the server does not respond or refuses the user. `kind` is the class of the error.
        """

    @abstractmethod
    def discard(self, connection: Any) -> None:
        """Close a connection that may be lost. The server rolls back its transaction."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool | None:
        """Return whether a retry may succeed, or None if the error does not come from the server."""

    @abstractmethod
    def explained(self, kind: type[PlatformError], problem: str, error: Exception) -> PlatformError:
        """Return an error of class `kind` with the server's message and a remedy."""

    @contextmanager
    def session(self, kind: type[PlatformError]) -> Iterator[Any]:
        """Open a connection without transactions, and close it at the end of the block.

        Raises:
            PlatformError: the server does not respond or refuses the user. `kind` is the class of the error.
        """
        connection = self.connect(kind, autocommit=True)
        try:
            yield connection
        finally:
            connection.close()


def pauses(patience_s: float) -> Iterator[float]:
    """Yield the seconds before each retry. End when `patience_s` has passed since the first failure."""
    end = time.monotonic() + patience_s
    for attempt in count():
        if time.monotonic() > end:
            return
        yield min(_LONGEST_PAUSE_S, 0.1 * 2.0**attempt) * random.uniform(0.5, 1.0)


class Reconnecting:
    """A user of one connection. It connects at its first request, and again after the server was lost."""

    def __init__(self, server: TableServer, kind: type[PlatformError], *, autocommit: bool = False) -> None:
        self._server = server
        self._kind = kind
        self._autocommit = autocommit
        self._connection: Any = None

    def _connect(self) -> Any:
        """Return a connection. All requests use it until `close`."""
        return self._server.connect(self._kind, autocommit=self._autocommit)

    def _retried(
        self, work: Callable[[], T], failed: Callable[[Exception, bool], PlatformError], retries: Iterator[float]
    ) -> T:
        """Return the result of `work`. While the server is lost, connect and call `work` again.

        Args:
            work: a function that uses `_connection`.
            failed: a function that takes the server's last error, and whether the server is lost. It returns the error to raise.
            retries: the seconds before each retry.

        Raises:
            PlatformError: the server is lost for too long, or refuses the request.
        """
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return work()
            except Exception as error:
                self.close()
                is_explained = isinstance(error, PenstockError)
                cause = error.__cause__ if is_explained else error
                lost = self._server.is_lost(cause) if isinstance(cause, Exception) else None
                pause = next(retries, None) if lost else None
                if pause is None:
                    if is_explained or lost is None:
                        raise
                    raise failed(error, lost) from error
                logger.info("%s: a request failed, retrying: %s", self._server.shown, error)
            time.sleep(pause)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._server.discard(connection)
