"""`MongoSink`: documents for each record, under ids of their own.

MongoSink("mongodb://job@db/", "weather", "means", lambda mean: {"_id": mean.station, "celsius": mean.celsius}, password_file="/secrets/password")
MongoSink("mongodb://job@db/", "weather", "readings", key=["station", "hour"])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.mongodb.bulk import Bulk
from penstock.connectors.mongodb.client import Server, package
from penstock.connectors.mongodb.operations import Write, Writes
from penstock.connectors.sink import Sink, SinkWriter, WriterContext


class MongoSink(Sink):
    """
    Args:
        url: MongoDB's; see the package.
        operation: a record -> what is written: a document, which replaces the one of its `_id` or is added; pymongo's `ReplaceOne`, `UpdateOne` or `DeleteOne`; several in a list;
            or None. Without it records are the documents: dicts, Rows with names, dataclasses, Structs, pydantic's models, and with `key` NamedTuples.
        key: fields that name a document instead of `_id`; they need a unique index.
        batch_size: a bulk is sent when there are so many writes,
        batch_bytes: or so many bytes,
        batch_time: or when they have waited so long, and at every checkpoint.
        patience: how long a server may be lost, without a primary or overloaded until the job fails over.
        password_file: holds the password; read at every connection.
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
                raise InvalidJob(f"{name}={value}", remedy="1 or more")
        self.server = Server(url, password_file)
        if self.server.said("w") == "0":
            raise InvalidJob(
                "w=0 in the URL of a MongoDB that is written to: nothing would tell whether it has taken anything",
                remedy="leave it out (a majority confirms), or w=1",
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
        """
        Raises:
            SinkError: the server does not answer or does not let us, or the key has no unique index.
        """
        client = self.server.connect(SinkError)
        try:
            database = client[self.database]
            database.list_collection_names(filter={"name": self.collection}, authorizedCollections=True)
            if self.key and set(self.key) != {"_id"}:
                self._check_index(database[self.collection].index_information())
        except package("pymongo.errors").PyMongoError as error:
            what = f"collection {self.database}.{self.collection} cannot be looked up"
            raise self.server.explained(SinkError, what, error) from error
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
            f"{self.server.shown}: key={list(self.key)} of {self.database}.{self.collection} has no unique index, so that a document could be there twice",
            remedy=f"make one: db.{self.collection}.createIndex({{{fields}}}, {{unique: true}}), or name documents by _id",
        )


class MongoWriter(BatchingWriter):
    """Holds one write for each document: what a later one replaces is not sent, and one that adds to another waits until that is there."""

    def __init__(self, sink: MongoSink) -> None:
        super().__init__(sink.batch_ms)
        self._sink = sink
        self._writes = Writes(sink.operation, sink.key)
        self._bulk = Bulk(sink.server, sink.database, sink.collection, sink.patience_s)
        self._held: dict[bytes, Write] = {}
        self._bytes = 0

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        sink = self._sink
        for value in values:
            for write in self._writes.of(value):
                self._hold(write)
                if len(self._held) >= sink.batch_size or self._bytes >= sink.batch_bytes:
                    self.flush()

    def _hold(self, write: Write) -> None:
        before = self._held.get(write.key)
        if before is not None:
            if write.replaces:
                del self._held[write.key]
                self._bytes -= before.size
            else:
                self.flush()
        self._held[write.key] = write
        self._bytes += write.size

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for long, or refuses a write.
        """
        if self._held:
            held, self._held, self._bytes = list(self._held.values()), {}, 0
            self._bulk.send(held)

    def close(self) -> None:
        self._bulk.close()


def check_names(database: str, collection: str) -> None:
    """
    Raises:
        InvalidJob: no database or collection can have such a name.
    """
    for what, name, strange in (("database", database, '/\\. "$'), ("collection", collection, "$")):
        if not name or any(character in name for character in strange + "\0"):
            raise InvalidJob(f"{what}={name!r}", remedy=f"give the name of a {what}")
