"""The writes of a sink to a server with MongoDB's protocol, and its behaviour if the server rejects writes or is unavailable."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pymongo import DeleteOne, ReplaceOne, UpdateOne

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.mongodb import MongoSink
from tools.servers.mongodb import USER, MongoServer

pytestmark = pytest.mark.mongodb
CONTEXT = WriterContext(0, 1, 0, "out", "job")
DATABASE = "written"


@pytest.fixture
def collection(mongodb: MongoServer) -> Iterator[Any]:
    with mongodb.client() as client:
        yield client[DATABASE][f"c{uuid.uuid4().hex[:10]}"]


def put(sink: MongoSink, *values: Any) -> None:
    sink.validate()
    writer = sink.create_writer(CONTEXT, [])
    try:
        writer.write(list(values), None, 0)
        writer.prepare_commit(1)
    finally:
        writer.close()


def found(collection: Any) -> dict[Any, Any]:
    return {document.pop("_id"): document for document in collection.find()}


def test_documents_have_the_state_of_their_last_writes(mongodb: MongoServer, collection: Any) -> None:
    writes = [
        {"_id": "a", "n": 1},
        {"_id": "b", "n": 2},
        {"_id": "a", "n": 3},
        UpdateOne({"_id": "a"}, {"$set": {"m": 4}}),
        UpdateOne({"_id": "c"}, {"$set": {"m.n": 5}, "$max": {"top": 7}}, upsert=True),
        UpdateOne({"_id": "c"}, {"$max": {"top": 6}}, upsert=True),
        UpdateOne({"_id": "c", "top": {"$gt": 100}}, {"$set": {"never": 1}}),
        DeleteOne({"_id": "b"}),
        DeleteOne({"_id": "never there"}),
        [ReplaceOne({"_id": "d"}, {"n": 8}), ReplaceOne({"_id": "e"}, {"n": 9}, upsert=True)],
        None,
    ]
    put(MongoSink(mongodb.url, DATABASE, collection.name, lambda write: write), *writes)
    assert found(collection) == {"a": {"n": 3, "m": 4}, "c": {"m": {"n": 5}, "top": 7}, "e": {"n": 9}}
    put(MongoSink(mongodb.url, DATABASE, collection.name, batch_size=2), *({"_id": "f", "n": n} for n in range(9)))
    assert found(collection)["f"] == {"n": 8}


class Mean(msgspec.Struct):
    station: str = msgspec.field(name="_id")
    celsius: float = 0.0


@dataclasses.dataclass
class Station:
    name: str
    height: int


def test_records_are_documents_by_their_fields(mongodb: MongoServer, collection: Any) -> None:
    sink = MongoSink(mongodb.url, DATABASE, collection.name)
    station = Station("JFK", np.int32(4))  # type: ignore[arg-type]
    put(sink, Mean("a", 1.5), {"_id": "b", "at": station, "days": np.arange(2)})
    assert found(collection) == {
        "a": {"celsius": 1.5},
        "b": {"at": {"name": "JFK", "height": 4}, "days": [0, 1]},
    }


def test_documents_may_be_identified_by_fields_with_a_unique_index(mongodb: MongoServer, collection: Any) -> None:
    sink = MongoSink(mongodb.url, DATABASE, collection.name, key=["station", "hour"])
    collection.create_index([("station", 1)], unique=True)
    with pytest.raises(SinkError, match="has no unique index") as error:
        sink.validate()
    assert "createIndex({station: 1, hour: 1}, {unique: true})" in error.value.remedy
    collection.drop_index("station_1")
    collection.create_index([("hour", 1), ("station", 1)], unique=True)
    documents = [{"station": "JFK", "hour": hour, "n": n} for n in range(2) for hour in (1, 2)]
    put(sink, *documents)
    put(sink, *documents)
    assert sorted((document["hour"], document["n"]) for document in collection.find()) == [(1, 1), (2, 1)]


def test_the_error_for_a_rejected_write_has_the_document_and_the_servers_message(
    mongodb: MongoServer, collection: Any
) -> None:
    collection.create_index("mail", unique=True)
    sink = MongoSink(mongodb.url, DATABASE, collection.name)
    put(sink, {"_id": "ada", "mail": "x"})
    with pytest.raises(SinkError, match=r"document \{_id: 'luna'\} of .* is rejected: E11000 duplicate key") as error:
        put(sink, {"_id": "kim", "mail": "y"}, {"_id": "luna", "mail": "x"})
    assert "unique index" in error.value.remedy
    assert found(collection)["ada"] == {"mail": "x"}
    with pytest.raises(SinkError, match=r"\{_id: 'big'\} has 17,000,\d+ bytes, more than MongoDB.s limit of 16 MB"):
        put(sink, {"_id": "big", "content": b"x" * 17_000_000})


def test_large_documents_are_sent_in_bulks_of_some_megabytes(mongodb: MongoServer, collection: Any) -> None:
    put(MongoSink(mongodb.url, DATABASE, collection.name), *({"_id": f"{n}", "d": b"x" * 1_000_000} for n in range(12)))
    assert {key: len(document["d"]) for key, document in found(collection).items()} == {
        f"{n}": 1_000_000 for n in range(12)
    }


def test_an_unavailable_server_or_refused_access_is_an_error_before_the_job_starts(
    mongodb: MongoServer, tmp_path: Path
) -> None:
    def sink(url: str, **options: Any) -> MongoSink:
        return MongoSink(url, DATABASE, "any", **options)

    with pytest.raises(SinkError, match=r"MongoDB 127\.0\.0\.1:1: cannot connect") as error:
        sink("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300").validate()
    assert "check that the server runs" in error.value.remedy
    with pytest.raises(SinkError, match="Authentication failed") as error:
        sink(mongodb.url_of(f"{USER}:wrong")).validate()
    assert "password_file" in error.value.remedy
    with pytest.raises(SinkError, match="requires authentication") as error:
        sink(mongodb.url_of()).validate()
    assert "readWrite" in error.value.remedy
    secret = tmp_path / "password"
    with pytest.raises(SinkError, match="password_file"):
        sink(mongodb.url_of(USER), password_file=str(secret)).validate()
    secret.write_text(f"{mongodb.password}\n")
    sink(mongodb.url_of(USER), password_file=str(secret)).validate()
    with pytest.raises(InvalidJob, match="without a user"):
        sink(mongodb.url_of(), password_file=str(secret))


def test_the_sink_retries_a_connection_that_the_server_closes_for_some_time(
    mongodb: MongoServer, collection: Any
) -> None:
    """FerretDB closes the connection when it receives a decimal."""
    from decimal import Decimal

    sink = MongoSink(mongodb.url, DATABASE, collection.name, patience=300)
    with pytest.raises(SinkError, match="connection closed"):
        put(sink, {"_id": "a", "price": Decimal("1.5")})
    put(sink, {"_id": "b"})
    assert found(collection) == {"b": {}}
