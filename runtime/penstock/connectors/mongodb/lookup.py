"""`MongoLookup`: look up documents for each value of a stream, asynchronously and with a cache.

stations = MongoLookup("mongodb://job@db/", "weather", "stations", key=lambda reading: reading.station,
                       join=lambda reading, found: [(reading, found[0] if found else None)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from penstock.common.errors import PlatformError, SourceError
from penstock.connectors.core.lookup import Lookup, LookupOptions
from penstock.connectors.mongodb.client import Server, is_passing, look_up, package
from penstock.connectors.mongodb.documents import record_options, storable, stored_options
from penstock.connectors.mongodb.ranges import packed, unpacked
from penstock.connectors.mongodb.sink import check_names


class MongoLookup(Lookup):
    """A look-up of a document for each value of a stream.

    Args:
        url: MongoDB's URL, as described in `penstock.connectors.mongodb`.
        key: a function from a value of the stream to its key. The key needs the type that the field has in MongoDB, such as `ObjectId`. None
            means no lookup.
        join: a function from a value and its documents to a list of results. The documents are dicts (see `MongoSource`) in no particular
            order.
        field: the field that contains the keys. An index on it makes lookups fast.
        fields: the fields to read. The default is all fields.
        password_file: the file with the password. It is read at every connection.
        options: the options of all lookups: `ttl`, `most_kept`, `connections`.
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
        password_file: str = "",
        **options: Unpack[LookupOptions],
    ) -> None:
        super().__init__(_PackedKey(key), join, **options)
        self.server = Server(url, password_file)
        check_names(database, collection)
        self.database = database
        self.collection = collection
        self.field = field
        self.fields = tuple(fields)

    def open(self, runtime_context: Any) -> None:
        """Connect to the server and check the collection.

        Raises:
            SourceError: the server does not answer or refuses access, or the collection does not exist.
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

    async def _request(self, connection: Any, keys: list[str]) -> dict[str, list[Any]]:
        collection = connection[self.database].get_collection(self.collection, codec_options=stored_options())
        projection = dict.fromkeys((*self.fields, self.field), 1) if self.fields else None
        raw = package("bson.raw_bson").RawBSONDocument
        found: dict[str, list[Any]] = {}
        requested = set(keys)
        condition = {self.field: {"$in": [unpacked(key) for key in keys]}}
        async for document in collection.with_options(stored_options().with_options(document_class=raw)).find(
            condition, projection
        ):
            record = package("bson").decode(document.raw, codec_options=record_options())
            for value in _values_at(package("bson").decode(document.raw, codec_options=stored_options()), self.field):
                key = packed(_same(value))
                if key in requested:
                    found.setdefault(key, []).append(record)
        return found

    def _no_result(self) -> list[Any]:
        return []

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, package("pymongo.errors").PyMongoError):
            return None, False
        problem = f"collection {self.database}.{self.collection} cannot be read"
        return self.server.explained(SourceError, problem, error), is_passing(error)


class _PackedKey:
    """A function that encodes a key and its type as text. It is picklable if the user's function is picklable."""

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
                f"{error}; `key` returned it for {str(value)[:200]}", remedy="return a key with a BSON representation"
            ) from error


def _same(value: Any) -> Any:
    """Return a number in a form that is the same for equal numbers of different types. Return other values unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if type(value).__name__ == "Int64" else value


def _values_at(document: Any, path: str) -> list[Any]:
    """Return the values that an index on the path would have for a document. Each item of an array is a separate value."""
    found = [document]
    for name in path.split("."):
        inner = [item.get(name) for item in found if isinstance(item, dict)]
        found = [item for value in inner for item in (value if isinstance(value, list) else [value])]
    return found
