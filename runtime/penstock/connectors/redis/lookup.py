"""`RedisLookup`: strings or hashes for each value of a stream, asked for beside the task, and kept for a time.

stations = RedisLookup("redis://job@cache:6379", key=lambda reading: f"station:{reading.station}", fields=["name", "height"],
                       join=lambda reading, station: [(reading, station)])
AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.common.time import TimeLike
from penstock.connectors.lookup import Lookup
from penstock.connectors.redis.client import Server, is_passing, package

ALL = "*"


class RedisLookup(Lookup):
    """
    Args:
        url: redis-py's; see the package.
        key: a value of the stream -> the key, as text; None is looked for nowhere.
        join: a value and what is there (None: nothing) -> the results, any number.
        fields: of hashes, given as a dict; "*": all of them; without, keys hold strings.
        binary: what is there is bytes, not text; names of fields are text.
        ttl: how long an answer is believed, also that there is nothing; 0: not at all.
        most_kept: answers of a subtask at most; the oldest go first.
        connections: of a subtask at most.
        password_file: holds the password; read at every connection.
    """

    def __init__(
        self,
        url: str,
        *,
        key: Callable[[Any], str | None],
        join: Callable[[Any, Any], list[Any]],
        fields: str | Sequence[str] = (),
        binary: bool = False,
        ttl: TimeLike = 60_000,
        most_kept: int = 100_000,
        connections: int = 2,
        password_file: str = "",
    ) -> None:
        super().__init__(key, join, ttl, most_kept, connections)
        if isinstance(fields, str) and fields != ALL:
            raise InvalidJob(f"fields={fields!r}", remedy='give a list of names, or "*"')
        self.server = Server(url, password_file)
        self.fields = fields if isinstance(fields, str) else tuple(fields)
        self.binary = binary

    def open(self, runtime_context: Any) -> None:
        """
        Raises:
            SourceError: the server does not answer or does not let us.
        """
        self.server.connect(SourceError).close()
        self._prepare()

    @property
    def shown(self) -> str:
        return self.server.shown

    async def _connect(self) -> Any:
        client = package("redis.asyncio").Redis
        return client.from_url(self.server.url, **self.server.options(SourceError, ".asyncio"))

    async def _disconnect(self, connection: Any) -> None:
        await connection.aclose()

    async def _ask(self, connection: Any, keys: list[str]) -> dict[str, Any]:
        pipeline = connection.pipeline(transaction=False)
        for key in keys:
            if self.fields == ALL:
                pipeline.hgetall(key)
            elif self.fields:
                pipeline.hmget(key, self.fields)
            else:
                pipeline.get(key)
        answers = await pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return {key: self._made(key, answer) for key, answer in zip(keys, answers, strict=True)}

    def _made(self, key: str, answer: Any) -> Any:
        if not self.fields:
            return None if answer is None else self._text(answer, key)
        if self.fields == ALL:
            return {self._name(name): self._text(value, key) for name, value in answer.items()} or None
        if all(value is None for value in answer):
            return None
        return {
            name: None if value is None else self._text(value, key)
            for name, value in zip(self.fields, answer, strict=True)
        }

    @staticmethod
    def _name(name: bytes) -> str:
        return name.decode(errors="backslashreplace")

    def _text(self, value: bytes, key: str) -> Any:
        if self.binary:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.shown}: key {key!r} holds no text in UTF-8: {value[:50]!r}", remedy="ask for bytes: binary=True"
            ) from error

    def _nothing(self) -> None:
        return None

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, package().RedisError | OSError):
            return None, False
        return self.server.explained(SourceError, "keys cannot be looked up", error), is_passing(error)
