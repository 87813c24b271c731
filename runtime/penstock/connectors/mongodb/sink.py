"""`MongoSink`: write documents for each record, under unique ids.

MongoSink("mongodb://job@db/", "weather", "means", lambda mean: {"_id": mean.station, "celsius": mean.celsius}, password_file="/secrets/password")
MongoSink("mongodb://job@db/", "weather", "readings", key=["station", "hour"])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.bulk import DocumentWriter
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.mongodb.bulk import MongoBulk
from penstock.connectors.mongodb.client import Server, package
from penstock.connectors.mongodb.operations import Write, Writes


class MongoSink(Sink):
    """A sink that writes documents for each record, under unique ids.

    Args:
        url: MongoDB's URL; see the package.
        operation: a function from a record to a document. The document replaces the existing document with the same
            `_id`, or is inserted. The function may also return pymongo's `ReplaceOne`, `UpdateOne` or `DeleteOne`, a
            list of these and documents, or None. Without a function, the records are the documents: dicts, Rows with
            names, dataclasses, Structs or pydantic models. If `key` is set, they can also be NamedTuples.
        key: the fields that identify a document instead of `_id`. They need a unique index.
        batch_size: the number of writes after which a bulk is sent.
        batch_bytes: the size in bytes after which a bulk is sent.
        batch_time: the maximum time that writes wait before the sink sends them. The sink also sends them at every checkpoint.
        patience: how long the sink retries if the server is lost or overloaded, or has no primary. After this time, the job fails over.
        password_file: the file with the password. It is read at every connection.
    """

    def __init__(
        self,
        url: str,
        database: str,
        collection: str,
        operation: Callable[[Any], Any] | None = None,
        *,
        key: str | Sequence[str] = (),
        batch_size: int = 1_000,
        batch_bytes: int = 5 << 20,
        batch_time: TimeLike = 1_000,
        patience: TimeLike = 30_000,
        password_file: str = "",
    ) -> None:
        for name, value in (("batch_size", batch_size), ("batch_bytes", batch_bytes)):
            if value < 1:
                raise InvalidJob(f"{name}={value} is too small", remedy=f"set {name} to at least 1")
        self.server = Server(url, password_file)
        if self.server.option("w") == "0":
            raise InvalidJob(
                "w=0 in the URL of a MongoDB sink: the server would not report whether it has accepted the writes",
                remedy="remove w=0 from the URL (then a majority of the servers confirms writes), or set w=1",
            )
        check_names(database, collection)
        self.database = database
        self.collection = collection
        self.operation = operation
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.batch_size = batch_size
        self.batch_bytes = batch_bytes
        self.batch_ms = as_millis(batch_time, "batch_time")
        self.patience_s = as_millis(patience, "patience") / 1000

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return MongoWriter(self)

    def validate(self) -> None:
        """Check before the job starts that the server is accessible and the key has a unique index.

        Raises:
            SinkError: the server does not answer or refuses access, or the key has no unique index.
        """
        client = self.server.connect(SinkError)
        try:
            database = client[self.database]
            database.list_collection_names(filter={"name": self.collection}, authorizedCollections=True)
            if self.key and set(self.key) != {"_id"}:
                self._check_index(database[self.collection].index_information())
        except package("pymongo.errors").PyMongoError as error:
            problem = f"collection {self.database}.{self.collection} cannot be looked up"
            raise self.server.explained(SinkError, problem, error) from error
        finally:
            client.close()

    def _check_index(self, indices: dict[str, Any]) -> None:
        wanted = set(self.key)
        for index in indices.values():
            is_partial = "partialFilterExpression" in index
            if index.get("unique") and not is_partial and {name for name, _ in index["key"]} == wanted:
                return
        fields = ", ".join(f"{name}: 1" for name in self.key)
        raise SinkError(
            f"{self.server.shown}: key={list(self.key)} of {self.database}.{self.collection} has no unique index, so duplicates could occur",
            remedy=f"create one: db.{self.collection}.createIndex({{{fields}}}, {{unique: true}}), or identify documents by _id",
        )


class MongoWriter(DocumentWriter[Write]):
    """A writer of the documents of each record."""

    def __init__(self, sink: MongoSink) -> None:
        bulk = MongoBulk(sink.server, sink.database, sink.collection, sink.patience_s)
        super().__init__(bulk, sink.batch_ms, sink.batch_size, sink.batch_bytes)
        self._writes = Writes(sink.operation, sink.key)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for value in values:
            for write in self._writes.of(value):
                self._hold(write)


def check_names(database: str, collection: str) -> None:
    """Check the names of the database and the collection.

    Raises:
        InvalidJob: the name is not valid for a database or a collection.
    """
    for field, name, strange in (("database", database, '/\\. "$'), ("collection", collection, "$")):
        if not name or any(character in name for character in strange + "\0"):
            raise InvalidJob(f"{field}={name!r} is not the name of a {field}", remedy="pass a name that MongoDB allows")
