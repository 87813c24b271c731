"""Answers of a service for the keys of a stream, asked for beside the task, and kept for a time.

Keys that are asked for at the same time go in one request, and a key that is asked for already is not asked for again.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.functions.async_io.async_functions import AsyncFunction

_AT_ONCE = 500
"""Keys in one request."""
_TRIES = 5
_IDLE_S = 10.0
"""How long a connection is kept that nobody needs."""
_ANSWER_S = 30.0
"""Until a request without an answer counts as lost."""


class Lookup(AsyncFunction):
    """What is the same for all services. `_prepare` is called by `open`.

    Args:
        key: a value of the stream -> its key; None is looked for nowhere.
        join: a value and what was found -> the results, any number.
        ttl: how long an answer is believed, also that there is nothing; 0: not at all.
        most_kept: answers of a subtask at most; the oldest go first.
        connections: of a subtask at most.
    """

    def __init__(
        self,
        key: Callable[[Any], Any],
        join: Callable[[Any, Any], list[Any]],
        ttl: TimeLike,
        most_kept: int,
        connections: int,
    ) -> None:
        if connections < 1 or most_kept < 0:
            raise InvalidJob(
                f"connections={connections}, most_kept={most_kept}",
                remedy="one connection at least, most_kept 0 or more",
            )
        self.key = key
        self.join = join
        self.ttl_s = as_millis(ttl, "ttl") / 1000
        self.most_kept = most_kept
        self.connections = connections

    @property
    @abstractmethod
    def shown(self) -> str:
        """The service, in errors."""

    @abstractmethod
    async def _connect(self) -> Any:
        """A connection."""

    @abstractmethod
    async def _disconnect(self, connection: Any) -> None:
        """It is not used any more; it may be lost."""

    @abstractmethod
    async def _ask(self, connection: Any, keys: list[str]) -> Mapping[str, Any]:
        """What is there of the keys."""

    @abstractmethod
    def _nothing(self) -> Any:
        """What is found of a key that is not there."""

    @abstractmethod
    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        """What `_connect` or `_ask` raised, with what to do, None if it is not the service's; and whether another try may succeed."""

    def _prepare(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._waiting: list[str] = []
        self._working: set[asyncio.Task[None]] = set()
        self._idle: list[Any] = []
        self._idle_until = 0.0
        self._tidying: asyncio.Task[None] | None = None

    async def async_invoke(self, value: Any) -> list[Any]:
        key = self.key(value)
        return self.join(value, self._nothing() if key is None else await self._found(str(key)))

    async def _found(self, key: str) -> Any:
        until, found = self._kept.get(key, (0.0, None))
        if time.monotonic() < until:
            return found
        asked = self._asked.get(key)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = self._asked[key] = loop.create_future()
            self._waiting.append(key)
            if len(self._working) < self.connections:
                task = loop.create_task(self._work())
                self._working.add(task)
                task.add_done_callback(self._working.discard)
        return await asyncio.shield(asked)  # who waits no longer must not take the answer from the others

    async def _work(self) -> None:
        """Ask for what waits, until nothing does."""
        await asyncio.sleep(0)  # what comes in the same turn goes in the same request
        connection = self._idle.pop() if self._idle else None
        while self._waiting:
            keys, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
            try:
                connection, found = await self._tried(connection, keys)
            except BaseException as error:
                connection = None
                self._fail(keys, error)
                if not isinstance(error, Exception):
                    raise
            else:
                self._keep(keys, found)
        if connection is not None:
            self._idle.append(connection)
            self._tidy()

    async def _tried(self, connection: Any, keys: list[str]) -> tuple[Any, Mapping[str, Any]]:
        """The connection that was used last, and what was found."""
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    if connection is None:
                        connection = await self._connect()
                    return connection, await self._ask(connection, keys)
            except BaseException as error:
                lost, connection = connection, None
                if lost is not None:
                    await self._disconnect(lost)
                if not isinstance(error, Exception):
                    raise
                told, may_pass = self._told(error)
                attempt += 1
                if told is None:
                    raise
                if not may_pass or attempt == _TRIES:
                    raise told from error
            await asyncio.sleep(0.1 * 2 ** (attempt - 1))

    def _told(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if isinstance(error, TimeoutError):
            what = f"{self.shown}: no answer within {_ANSWER_S:.0f} s"
            return SourceError(what, remedy="look at the server; the job tries again when it fails over"), True
        return self._explained(error)

    def _fail(self, keys: Iterable[str], error: BaseException) -> None:
        for key in keys:
            asked = self._asked.pop(key)
            if not asked.done():
                asked.set_exception(error)
                asked.exception()  # somebody may wait for it no longer

    def _keep(self, keys: Iterable[str], answers: Mapping[str, Any]) -> None:
        until = time.monotonic() + self.ttl_s
        for key in keys:
            found = answers[key] if key in answers else self._nothing()
            asked = self._asked.pop(key)
            if not asked.done():
                asked.set_result(found)
            self._kept[key] = until, found
            self._kept.move_to_end(key)
        while len(self._kept) > self.most_kept:
            self._kept.popitem(last=False)

    def _tidy(self) -> None:
        self._idle_until = time.monotonic() + _IDLE_S
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().create_task(self._end_idle())

    async def _end_idle(self) -> None:
        """Also when the task is cancelled, as the function's loop does with all of them at its end."""
        try:
            while (left := self._idle_until - time.monotonic()) > 0:
                await asyncio.sleep(left)
        finally:
            self._tidying = None
            idle, self._idle = self._idle, []
            for connection in idle:
                await self._disconnect(connection)
