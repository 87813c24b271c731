"""`MongoSource`: read the documents of a collection, in parallel ranges of `_id`.

MongoSource("mongodb://job@db/", "weather", "stations", Station, password_file="/secrets/password")
MongoSource("mongodb://job@db/", "weather", "readings", filter={"celsius": {"$gt": 30}}, splits=8)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import to_type_info
from penstock.connectors.core.source import (
    OneTimeEnumerator,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.bulk import columns_of_read
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.mongodb.client import Connection, Server, look_up, package
from penstock.connectors.mongodb.documents import encoded, last_of, record_options, stored_options
from penstock.connectors.mongodb.ranges import IdRange, find_ranges, packed
from penstock.connectors.mongodb.sink import check_names
from penstock.records.batch import Batch, ColumnBatch, RowBatch

_FIRST_PAGE = 10
"""Number of documents of a page while their size is unknown."""


class MongoSource(Source):
    """A source that reads the documents of a collection, in parallel ranges of `_id`.

    Args:
        url: MongoDB's URL; see the package.
        fields: the fields to read and the form of records (see `formats.shape`). Without fields, records are dicts of whole documents,
            with ids (`ObjectId`) as text, decimals as `Decimal`, and times in UTC.
        record: another form for the same fields: "tuple", "dict" or "row".
        filter: a query that selects documents.
        splits: the number of parallel ranges of `_id`. The default is one per subtask.
        patience: how long a server may be unavailable before the job fails over.
        password_file: the file with the password. It is read at every connection.
    """

    def __init__(
        self,
        url: str,
        database: str,
        collection: str,
        fields: Declaration | None = None,
        *,
        record: str | None = None,
        filter: Mapping[str, Any] | None = None,
        splits: int | None = None,
        patience: TimeLike = 30_000,
        password_file: str = "",
    ) -> None:
        self.server = Server(url, password_file)
        check_names(database, collection)
        if splits is not None and splits < 1:
            raise InvalidJob(f"splits={splits} is too small", remedy="set splits to at least 1")
        if record is not None and fields is None:
            raise InvalidJob(
                f"record={record!r} needs fields", remedy="declare the fields: {'name': str, 'height': int}"
            )
        self.database = database
        self.collection = collection
        self.shape = None if fields is None else RecordShape.of(fields, record)
        try:
            self.filter = encoded(filter or {})
        except ValueError as error:
            raise InvalidJob(f"filter={filter!r} is not valid: {error}", remedy="pass a MongoDB query") from error
        self.splits = splits
        self.patience_s = as_millis(patience, "patience") / 1000

    def of(self, client: Any) -> Any:
        return client[self.database].get_collection(self.collection, codec_options=stored_options())

    def create_enumerator(self) -> SplitEnumerator:
        return MongoEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return MongoReader(self)

    def produced_type(self) -> Any:
        return to_type_info(dict[str, Any]) if self.shape is None else self.shape.produced_type()

    def validate(self) -> None:
        """Check before the job starts that the collection can be read and the filter is valid.

        Raises:
            SourceError: the server does not answer or refuses access, the collection does not exist, or the filter is invalid.
        """
        client = self.server.connect(SourceError)
        try:
            look_up(client, self.server, self.database, self.collection, SourceError)
            condition = package("bson").decode(self.filter, codec_options=stored_options())
            self.of(client).find_one(condition, {"_id": 1})
        except package("pymongo.errors").PyMongoError as error:
            problem = f"collection {self.database}.{self.collection} cannot be read"
            raise self.server.explained(SourceError, problem, error) from error
        finally:
            client.close()


class MongoEnumerator(OneTimeEnumerator):
    """An enumerator of ranges of `_id`."""

    def __init__(self, source: MongoSource) -> None:
        super().__init__()
        self._source = source

    def find_splits(self) -> list[Split]:
        source = self._source
        connection = Connection(source.server, SourceError, source.patience_s)
        parts = source.splits or max(1, self.parallelism)
        try:
            problem = f"the ranges of {source.database}.{source.collection} cannot be found"
            ranges = connection.run(problem, lambda client: find_ranges(source.of(client), parts))
        finally:
            connection.close()
        return [Split(f"{n}", asdict(found), size) for n, (found, size) in enumerate(ranges)]


class MongoReader(SourceReader):
    """The reader of a subtask: one client for all its splits."""

    def __init__(self, source: MongoSource) -> None:
        self.source = source
        self._connection = Connection(source.server, SourceError, source.patience_s)
        self._condition = package("bson").decode(source.filter, codec_options=stored_options())
        names = None if source.shape is None else source.shape.names
        self._projection = None if names is None else dict.fromkeys((*names, "_id"), 1)

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return RangeReader(self, IdRange(**split.properties), position)

    def page(self, found: IdRange, position: str | None, limit: int) -> tuple[bytes, bool]:
        """Return the next documents as BSON. Also return whether the server's first answer has all of the requested documents.

        Raises:
            SourceError: the server is unavailable for longer than the source's `patience`, or rejects the query.
        """
        source = self.source
        condition = found.condition(position)
        if self._condition:
            condition = {"$and": [condition, self._condition]}

        def read(client: Any) -> tuple[bytes, bool]:
            cursor = source.of(client).find_raw_batches(
                condition, self._projection, sort=[("_id", 1)], limit=limit, batch_size=limit
            )
            try:
                batch = bytes(next(cursor, b""))
                return batch, not cursor.alive
            finally:
                cursor.close()

        return self._connection.run(f"collection {source.database}.{source.collection} cannot be read", read)

    def close(self) -> None:
        self._connection.close()


class RangeReader(SplitReader):
    """A reader of pages of documents. Its position is the `_id` of the last document that was read, as text."""

    def __init__(self, reader: MongoReader, found: IdRange, position: Any) -> None:
        self._reader = reader
        self._range = found
        self._position: str | None = position
        self._page = _FIRST_PAGE
        self._finished = False

    def read(self, bounds: ReadBounds) -> Batch | None:
        if self._finished:
            return None
        limit = max(1, min(bounds.max_records, self._page))
        batch, was_all = self._reader.page(self._range, self._position, limit)
        count, last = last_of(batch) if batch else (0, b"")
        self._finished = was_all and count < limit
        if not count:
            return None
        records = self._records(batch)
        self._position = packed(package("bson").decode(last, codec_options=stored_options())["_id"])
        self._page = max(1, bounds.max_bytes * count // len(batch))
        return records

    def _records(self, batch: bytes) -> Batch:
        source = self._reader.source
        where = f"{source.server.shown}: documents of {source.database}.{source.collection} after _id {self._position or 'none'}"
        try:
            documents = package("bson").decode_all(batch, codec_options=record_options())
        except (package("bson.errors").BSONError, ValueError, OverflowError) as error:
            raise RecordFormatError(
                f"{where} cannot be read: {error}", remedy="correct these documents, or exclude them with filter="
            ) from error
        if source.shape is None:
            return RowBatch(documents)
        try:
            return ColumnBatch(columns_of_read(documents, source.shape), None, source.shape.maker)
        except RecordFormatError as error:
            raise RecordFormatError(
                f"{where} do not fit the fields: {error.message}",
                remedy="declare the field with the type that it has in all documents, or exclude the other documents with filter=",
            ) from error

    @property
    def position(self) -> Any:
        return self._position

    @property
    def finished(self) -> bool:
        return self._finished
