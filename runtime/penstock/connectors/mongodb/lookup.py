"""`MongoLookup`: documents for each value of a stream, asked for beside the task, and kept for a time.

stations = MongoLookup("mongodb://job@db/", "weather", "stations", key=lambda reading: reading.station, join=lambda reading, found: [(reading, found[0] if found else None)])
AsyncDataStream.unordered_wait(readings, stations, timedelta(seconds=10), capacity=1000)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import PlatformError, SourceError
from penstock.common.time import TimeLike
from penstock.connectors.lookup import Lookup
from penstock.connectors.mongodb.client import Server, is_passing, look_up, package
from penstock.connectors.mongodb.documents import record_options, storable, stored_options
from penstock.connectors.mongodb.ranges import packed, unpacked
from penstock.connectors.mongodb.sink import check_names


class MongoLookup(Lookup):
    """
    Args:
        url: MongoDB's; see the package.
        key: a value of the stream -> what is looked for, as MongoDB has it (`ObjectId` where it is one); None is looked for nowhere.
        join: a value and its documents, in no order, as dicts (see `MongoSource`) -> the results, any number.
        field: what keys are looked for in; an index there is what makes it quick.
        fields: of documents; all of them unless given.
        ttl: how long an answer is believed, also that there is no document; 0: not at all.
        most_kept: answers of a subtask at most; the oldest go first.
        connections: clients of a subtask at most.
        password_file: holds the password; read at every connection.
    """

    def __init__(
        self,
        url: str,
        database: str,
        collection: str,
        *,
        key: Callable[[Any], Any],
        join: Callable[[Any, list[Any]], list[Any]],
        field: str = "_id",
        fields: Sequence[str] = (),
        ttl: TimeLike = 60_000,
        most_kept: int = 100_000,
        connections: int = 2,
        password_file: str = "",
    ) -> None:
        super().__init__(_PackedKey(key), join, ttl, most_kept, connections)
        self.server = Server(url, password_file)
        check_names(database, collection)
        self.database = database
        self.collection = collection
        self.field = field
        self.fields = tuple(fields)

    def open(self, runtime_context: Any) -> None:
        """
        Raises:
            SourceError: the server does not answer or does not let us, or there is no such collection.
        """
        client = self.server.connect(SourceError)
        try:
            look_up(client, self.server, self.database, self.collection, SourceError)
        finally:
            client.close()
        self._prepare()

    @property
    def shown(self) -> str:
        return self.server.shown

    async def _connect(self) -> Any:
        return package().AsyncMongoClient(self.server.url, **self.server.options(SourceError))

    async def _disconnect(self, connection: Any) -> None:
        await connection.close()

    async def _ask(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        collection = connection[self.database].get_collection(self.collection, codec_options=stored_options())
        projection = dict.fromkeys((*self.fields, self.field), 1) if self.fields else None
        raw = package("bson.raw_bson").RawBSONDocument
        found: dict[str, list[Any]] = {}
        asked = set(keys)
        condition = {self.field: {"$in": [unpacked(key) for key in keys]}}
        async for document in collection.with_options(stored_options().with_options(document_class=raw)).find(
            condition, projection
        ):
            made = package("bson").decode(document.raw, codec_options=record_options())
            for value in _values_at(package("bson").decode(document.raw, codec_options=stored_options()), self.field):
                key = packed(_same(value))
                if key in asked:
                    found.setdefault(key, []).append(made)
        return found

    def _nothing(self) -> list[Any]:
        return []

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, package("pymongo.errors").PyMongoError):
            return None, False
        what = f"collection {self.database}.{self.collection} cannot be read"
        return self.server.explained(SourceError, what, error), is_passing(error)


class _PackedKey:
    """A key as text, with its type. Picklable if the function is."""

    def __init__(self, key: Callable[[Any], Any]) -> None:
        self._key = key

    def __call__(self, value: Any) -> str | None:
        key = self._key(value)
        if key is None:
            return None
        try:
            return packed(_same(storable(key, "the key")))
        except ValueError as error:
            raise SourceError(
                f"{error}; of {str(value)[:200]}", remedy="give a key that MongoDB has a form for"
            ) from error


def _same(value: Any) -> Any:
    """Numbers that are equal are found by each other, whatever their type."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if type(value).__name__ == "Int64" else value


def _values_at(document: Any, path: str) -> list[Any]:
    """What an index has of a document: each item of an array, too."""
    found = [document]
    for name in path.split("."):
        inner = [item.get(name) for item in found if isinstance(item, dict)]
        found = [item for value in inner for item in (value if isinstance(value, list) else [value])]
    return found
