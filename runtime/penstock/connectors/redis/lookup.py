"""`RedisLookup`: look up a string or a hash for each value of a stream, asynchronously and with a cache.

    stations = RedisLookup("redis://job@cache:6379", key=lambda reading: f"station:{reading.station}", fields=["name", "height"],
                           join=lambda reading, station: [(reading, station)])
AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.connectors.core.lookup import Lookup, LookupOptions
from penstock.connectors.redis.client import Server, is_passing, package

ALL = "*"


class RedisLookup(Lookup):
    """A look-up of a string or a hash for each value of a stream.

    Args:
        url: the URL for redis-py; see the package.
        key: a function from a value of the stream to its key as text. None means no lookup.
        join: a function from a value and its lookup result (None if the key does not exist) to a list of results.
        fields: the fields to read from hashes, which become dicts. "*" means all fields. Without `fields`, the keys must hold strings.
        binary: whether values are bytes instead of text. Field names are always text.
        password_file: the file with the password. It is read at every connection.
        options: the options of all lookups: `ttl`, `most_kept`, `connections`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: Callable[[Any], str | None],
        join: Callable[[Any, Any], list[Any]],
        fields: str | Sequence[str] = (),
        binary: bool = False,
        password_file: str = "",
        **options: Unpack[LookupOptions],
    ) -> None:
        super().__init__(key, join, **options)
        if isinstance(fields, str) and fields != ALL:
            raise InvalidJob(f"fields={fields!r} is not a list of fields", remedy='pass a list of names, or "*"')
        self.server = Server(url, password_file)
        self.fields = fields if isinstance(fields, str) else tuple(fields)
        self.binary = binary

    def open(self, runtime_context: Any) -> None:
        """Connect to the server.

        Raises:
            SourceError: the server does not answer or refuses access.
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

    async def _request(self, connection: Any, keys: list[str]) -> dict[str, Any]:
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
        return {key: self._value_of(key, answer) for key, answer in zip(keys, answers, strict=True)}

    def _value_of(self, key: str, answer: Any) -> Any:
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
                f"{self.shown}: key {key!r} does not hold UTF-8 text: {value[:50]!r}",
                remedy="read bytes instead: binary=True",
            ) from error

    def _no_result(self) -> None:
        return None

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, package().RedisError | OSError):
            return None, False
        return self.server.explained(SourceError, "keys cannot be looked up", error), is_passing(error)
