"""Lookups of a service for the keys of a stream. They run asynchronously beside the task, and cache the results for a limited time.

Keys that are requested at the same time share one request. If the request of a key is in progress, the key is not requested again.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.functions.async_io.async_functions import AsyncFunction

_AT_ONCE = 500
"""Maximum number of keys in one request."""
_TRIES = 5
_IDLE_S = 10.0
"""Seconds after which unused connections are closed."""
_ANSWER_S = 30.0
"""Timeout of a request in seconds."""


class LookupOptions(TypedDict, total=False):
    """Keyword arguments of the lookups of all services."""

    ttl: TimeLike
    """How long results are cached. The result that a key does not exist is cached, too. 0 means no cache. Default: 60 s."""
    most_kept: int
    """Maximum number of cached results per subtask. The oldest results are evicted first. Default: 100,000."""
    connections: int
    """Maximum number of connections per subtask. Default: 2."""


class Lookup(AsyncFunction):
    """Base class of the lookups of all services. A subclass's `open` calls `_prepare`.

    Args:
        key: a value of the stream -> its key; None means no lookup.
        join: a value and the lookup result -> the list of output records.
    """

    def __init__(
        self,
        key: Callable[[Any], Any],
        join: Callable[[Any, Any], list[Any]],
        *,
        ttl: TimeLike = 60_000,
        most_kept: int = 100_000,
        connections: int = 2,
    ) -> None:
        if connections < 1 or most_kept < 0:
            raise InvalidJob(
                f"connections={connections}, most_kept={most_kept}: one of them is too small",
                remedy="set connections to at least 1, and most_kept to at least 0",
            )
        self.key = key
        self.join = join
        self.ttl_s = as_millis(ttl, "ttl") / 1000
        self.most_kept = most_kept
        self.connections = connections

    @property
    @abstractmethod
    def shown(self) -> str:
        """Return how errors name the service."""

    @abstractmethod
    async def _connect(self) -> Any:
        """Open a connection."""

    @abstractmethod
    async def _disconnect(self, connection: Any) -> None:
        """Close a connection, which may already be lost."""

    @abstractmethod
    async def _request(self, connection: Any, keys: list[str]) -> Mapping[str, Any]:
        """Return the results of the keys that exist, by key."""

    @abstractmethod
    def _no_result(self) -> Any:
        """Return the result for a key that does not exist."""

    @abstractmethod
    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        """Return the error to raise for an exception of `_connect` or `_request`, and whether a retry may succeed.

        The error is None if the exception does not come from the service.
        """

    def _prepare(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._waiting: list[str] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._idle: list[Any] = []
        self._idle_until = 0.0
        self._closing: asyncio.Task[None] | None = None

    async def async_invoke(self, value: Any) -> list[Any]:
        key = self.key(value)
        return self.join(value, self._no_result() if key is None else await self._found(str(key)))

    async def _found(self, key: str) -> Any:
        until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() < until:
            return found
        pending = self._pending.get(key)
        if pending is None:
            loop = asyncio.get_running_loop()
            pending = self._pending[key] = loop.create_future()
            self._waiting.append(key)
            if len(self._sending) < self.connections:
                task = loop.create_task(self._send_waiting())
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        return await asyncio.shield(pending)  # a cancelled caller must not cancel the request of the other callers

    async def _send_waiting(self) -> None:
        """Request the waiting keys until no key waits."""
        await asyncio.sleep(0)  # keys of the same turn of the loop go into the same request
        connection = self._idle.pop() if self._idle else None
        while self._waiting:
            keys, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                connection, found = await self._request_with_retries(connection, keys)
            except BaseException as error:
                connection = None
                self._fail(keys, error)
                if not isinstance(error, Exception):
                    raise
            else:
                self._keep(keys, found)
        if connection is not None:
            self._idle.append(connection)
            self._close_idle_later()

    async def _request_with_retries(self, connection: Any, keys: list[str]) -> tuple[Any, Mapping[str, Any]]:
        """Return the connection that was used last, and the results. Retry while a retry may help."""
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    if connection is None:
                        connection = await self._connect()
                    return connection, await self._request(connection, keys)
            except BaseException as error:
                lost, connection = connection, None
                if lost is not None:
                    await self._disconnect(lost)
                if not isinstance(error, Exception):
                    raise
                explained, can_retry = self._error_of(error)
                attempt += 1
                if explained is None:
                    raise
                if not can_retry or attempt == _TRIES:
                    raise explained from error
            await asyncio.sleep(0.1 * 2 ** (attempt - 1))

    def _error_of(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if isinstance(error, TimeoutError):
            problem = f"{self.shown}: no answer within {_ANSWER_S:.0f} s"
            return SourceError(problem, remedy="check the server; the job retries when it fails over"), True
        return self._explained(error)

    def _fail(self, keys: Iterable[str], error: BaseException) -> None:
        for key in keys:
            pending = self._pending.pop(key)
            if not pending.done():
                pending.set_exception(error)
                pending.exception()  # mark the exception as retrieved, because every caller may have been cancelled

    def _keep(self, keys: Iterable[str], answers: Mapping[str, Any]) -> None:
        until = time.monotonic() + self.ttl_s
        for key in keys:
            found = answers[key] if key in answers else self._no_result()
            pending = self._pending.pop(key)
            if not pending.done():
                pending.set_result(found)
            self._kept[key] = until, found
            self._kept.move_to_end(key)
        while len(self._kept) > self.most_kept:
            self._kept.popitem(last=False)

    def _close_idle_later(self) -> None:
        self._idle_until = time.monotonic() + _IDLE_S
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_idle())

    async def _close_idle(self) -> None:
        """Close unused connections after `_IDLE_S`, or when the loop cancels this task at the function's end."""
        try:
            while (remaining_s := self._idle_until - time.monotonic()) > 0:
                await asyncio.sleep(remaining_s)
        finally:
            self._closing = None
            idle, self._idle = self._idle, []
            for connection in idle:
                await self._disconnect(connection)
