"""Read collections by ranges of `_id`, with every type of `_id`."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import bson
import pytest

from penstock.common.errors import RecordFormatError, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.datastream.connectors.mongodb import MongoSource
from tools.servers.mongodb import USER, MongoServer

pytestmark = pytest.mark.mongodb
BOUNDS = ReadBounds(max_records=7)
DATABASE = "read"
AT = datetime(2013, 7, 1, tzinfo=UTC)
IDS: list[Any] = [
    *(None, -7, -0.5, 1.5, 3, 2**40, "", "a", "ä", {"a": 1}, {"a": 2}, b"x", b"yy", bson.Binary(b"1" * 16, 4)),
    *(bson.ObjectId("6b0762d3fd9af1a4d338e38a"), bson.ObjectId("6b0762d4fd9af1a4d338e38a")),
    *(False, True, datetime(1960, 1, 1, tzinfo=UTC), AT, bson.Timestamp(1, 1), bson.Timestamp(1, 2)),
    *(f"k{n:03}" for n in range(60)),
]


@pytest.fixture
def collection(mongodb: MongoServer) -> Iterator[Any]:
    with mongodb.client() as client:
        yield client[DATABASE][f"c{uuid.uuid4().hex[:10]}"]


def opened(source: MongoSource, split: Split, position: Any = None) -> Any:
    travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(travelled, json.loads(json.dumps(position)))


def read_split(source: MongoSource, split: Split) -> list[Any]:
    """Read with a new reader for every few documents, as if each reader ran in a separate process."""
    values: list[Any] = []
    position: Any = None
    finished = False
    while not finished:
        reader = opened(source, split, position)
        batch = reader.read(BOUNDS)
        values += [] if batch is None else batch.rows().values
        position, finished = reader.position, reader.finished
    return values


def read(source: MongoSource) -> list[Any]:
    source.validate()
    return [value for split in source.create_enumerator().discover() for value in read_split(source, split)]


@pytest.mark.parametrize("splits", [1, 3, 100])
def test_documents_with_any_type_of_id_are_read_once_from_any_position(
    mongodb: MongoServer, collection: Any, splits: int
) -> None:
    collection.insert_many([{"_id": value, "n": n} for n, value in enumerate(IDS)])
    seen = read(MongoSource(mongodb.url, DATABASE, collection.name, splits=splits))
    assert sorted(document["n"] for document in seen) == list(range(len(IDS)))


def test_ranges_have_about_the_same_length(mongodb: MongoServer, collection: Any) -> None:
    collection.insert_many([{"_id": f"k{n:03}"} for n in range(100)])
    source = MongoSource(mongodb.url, DATABASE, collection.name)
    enumerator = source.create_enumerator()
    enumerator.parallelism = 4
    assert [len(read_split(source, split)) for split in enumerator.discover()] == [25, 25, 25, 25]


def test_documents_added_after_the_end_during_the_read_are_not_read(mongodb: MongoServer, collection: Any) -> None:
    collection.insert_many([{"_id": f"k{n}"} for n in range(3)])
    source = MongoSource(mongodb.url, DATABASE, collection.name)
    [split] = source.create_enumerator().discover()
    collection.insert_one({"_id": "z"})
    reader = opened(source, split)
    assert [document["_id"] for document in reader.read(BOUNDS).rows().values] == ["k0", "k1", "k2"]
    assert reader.finished


@dataclasses.dataclass
class Station:
    _id: str
    height: float | None


def test_documents_are_records_of_some_fields(mongodb: MongoServer, collection: Any) -> None:
    ids = [bson.ObjectId() for _ in range(3)]
    collection.insert_many([{"_id": ids[0], "height": 4.5, "x": 1}, {"_id": ids[1], "x": 1}, {"_id": ids[2], "x": 2}])
    source = MongoSource(mongodb.url, DATABASE, collection.name, Station, filter={"x": 1})
    assert read(source) == [Station(str(ids[0]), 4.5), Station(str(ids[1]), None)]
    plain = MongoSource(mongodb.url, DATABASE, collection.name, filter={"_id": ids[2]})
    assert read(plain) == [{"_id": str(ids[2]), "x": 2}]


def test_values_come_as_pythons_own(mongodb: MongoServer, collection: Any) -> None:
    token = uuid.uuid4()
    document = {
        "_id": "a",
        "long": bson.Int64(5),
        "at": AT,
        "b": bson.Binary(b"x", 5),
        "list": [bson.ObjectId("6" * 24)],
    }
    collection.insert_one({**document, "token": bson.Binary.from_uuid(token)})
    [seen] = read(MongoSource(mongodb.url, DATABASE, collection.name))
    assert seen == {"_id": "a", "long": 5, "at": AT, "b": b"x", "list": ["6" * 24], "token": token}
    assert [type(seen[name]) for name in ("long", "at", "b")] == [int, datetime, bytes]


def test_an_empty_collection_ends(mongodb: MongoServer, collection: Any) -> None:
    collection.insert_one({"_id": 1})
    collection.delete_one({"_id": 1})
    assert read(MongoSource(mongodb.url, DATABASE, collection.name)) == []


def test_pages_of_large_documents_have_some_megabytes(mongodb: MongoServer, collection: Any) -> None:
    collection.insert_many([{"_id": f"k{n:02}", "d": b"x" * 100_000} for n in range(60)])
    source = MongoSource(mongodb.url, DATABASE, collection.name, splits=1)
    [split] = source.create_enumerator().discover()
    reader, lengths = opened(source, split), []
    while not reader.finished:
        batch = reader.read(ReadBounds())
        lengths.append(0 if batch is None else len(batch))
    assert lengths == [10, 41, 9]


def test_a_source_that_cannot_read_is_an_error_at_the_start(mongodb: MongoServer, collection: Any) -> None:
    def source(url: str, **options: Any) -> MongoSource:
        return MongoSource(url, DATABASE, collection.name, **options)

    with pytest.raises(SourceError, match=f"has no collection {DATABASE}.{collection.name}"):
        source(mongodb.url).validate()
    collection.insert_one({"_id": 1, "n": "x"})
    with pytest.raises(SourceError, match="Authentication failed"):
        source(mongodb.url_of(f"{USER}:wrong")).validate()
    with pytest.raises(SourceError, match=r"cannot be read: .*\$wrong"):
        source(mongodb.url, filter={"n": {"$wrong": 1}}).validate()
    with pytest.raises(RecordFormatError, match=r"after _id none do not fit the fields: .*'n'"):
        read(source(mongodb.url, fields={"n": int}))


def test_the_reader_retries_a_server_that_is_killed_or_paused_between_two_pages(tmp_path: Any) -> None:
    with MongoServer(tmp_path) as server:
        with server.client() as client:
            client[DATABASE]["c"].insert_many([{"_id": f"k{n:02}"} for n in range(40)])
        source = MongoSource(f"{server.url}?socketTimeoutMS=300", DATABASE, "c", splits=1)
        [split] = source.create_enumerator().discover()
        reader = opened(source, split)
        seen = reader.read(BOUNDS).rows().values
        server.kill()
        server.restart()
        seen += reader.read(BOUNDS).rows().values
        server.pause()
        impatient = MongoSource(
            f"{server.url}?socketTimeoutMS=100&serverSelectionTimeoutMS=100", DATABASE, "c", patience=200
        )
        with pytest.raises(SourceError, match=r"timed out|No servers found"):
            opened(impatient, split).read(BOUNDS)
        server.resume()
        while not reader.finished:
            batch = reader.read(BOUNDS)
            seen += [] if batch is None else batch.rows().values
    assert [document["_id"] for document in seen] == [f"k{n:02}" for n in range(40)]
