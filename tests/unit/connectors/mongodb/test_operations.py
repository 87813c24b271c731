"""Writes that the sink accepts, and the one that wins if two of them name the same document."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.mongodb.operations import Writes
from penstock.datastream.connectors.mongodb import MongoSink

CONTEXT = WriterContext(0, 1, 0, "out", "job")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "a int is not a document"),
        ({"n": 1}, "the document has no _id"),
        ({"_id": None}, "the document has no _id"),
        (InsertOne({"_id": 1}), "InsertOne does not identify a single document"),
        (UpdateMany({}, {"$set": {"a": 1}}), "UpdateMany does not identify a single document"),
        (DeleteMany({}), "DeleteMany does not identify a single document"),
        (DeleteOne({"n": 1}), "does not identify one document by _id"),
        (ReplaceOne({"_id": {"$gt": 1}}, {}), "does not identify one document by _id"),
        (UpdateOne({"_id": 1}, {"$inc": {"n": 1}}), r"\$inc are not idempotent"),
        (UpdateOne({"_id": 1}, {"$set": {"a": 1}, "$push": {"n": 1}}), r"\$push are not idempotent"),
        (UpdateOne({"_id": 1}, {"n": 1}), "the update {'n': 1} has no operators"),
        (UpdateOne({"_id": 1}, [{"$set": {"n": {"$add": ["$n", 1]}}}]), "pipeline is not idempotent"),
        (UpdateOne({"_id": 1, "n": 1}, {"$set": {"n": 2}}, upsert=True), "could create the document a second time"),
        ({"_id": 1, "n": 2**70}, "n is the number"),
        ({"_id": object()}, "_id is a object"),
    ],
)
def test_a_write_that_is_not_idempotent_or_not_valid_is_named(given: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        Writes(None, ()).of(given)


def test_a_missing_key_field_is_an_error() -> None:
    writes = Writes(None, ("a", "b"))
    with pytest.raises(SinkError, match="the document has no b"):
        writes.of({"a": 1})
    [write] = writes.of({"a": 1, "b": 2, "n": 3})
    assert write.shown == "{a: 1, b: 2}"
    assert write.request._filter == {"a": 1, "b": 2}


def test_equal_numbers_name_the_same_document() -> None:
    keys = {Writes(None, ()).of({"_id": value})[0].key for value in (1, 1.0)}
    assert len(keys) == 1
    assert Writes(None, ()).of({"_id": 1.5})[0].key not in keys


def test_names_and_sizes_are_checked() -> None:
    for options in ({"database": "a.b"}, {"database": ""}, {"collection": "$x"}, {"batch_size": 0}, {"batch_bytes": 0}):
        given: dict[str, Any] = {"url": "mongodb://db/", "database": "d", "collection": "c", **options}
        with pytest.raises(InvalidJob):
            MongoSink(**given)


class Sent:
    """A fake server that records what a writer sends."""

    def __init__(self) -> None:
        self.bulks: list[list[str]] = []

    def send(self, writes: Any) -> None:
        self.bulks.append([str(write.request) for write in writes])

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("writes", "bulks"),
    [
        ([{"_id": 1, "n": 1}, {"_id": 1, "n": 2}], [1]),
        ([{"_id": 1}, DeleteOne({"_id": 1})], [1]),
        ([DeleteOne({"_id": 1}), {"_id": 1}], [1]),
        ([{"_id": 1}, UpdateOne({"_id": 1}, {"$set": {"a": 1}})], [1, 1]),
        ([UpdateOne({"_id": 1}, {"$set": {"a": 1}}), {"_id": 1}], [1]),
        ([DeleteOne({"_id": 1}), ReplaceOne({"_id": 1}, {"n": 1})], [1, 1]),
        ([{"_id": 1}, DeleteOne({"_id": 1, "n": 2})], [1, 1]),
        ([{"_id": n} for n in range(5)], [3, 2]),
    ],
)
def test_two_writes_of_a_document_are_never_in_one_bulk(writes: list[Any], bulks: list[int]) -> None:
    writer: Any = MongoSink("mongodb://db/", "d", "c", batch_size=3).create_writer(CONTEXT, [])
    sent = writer._bulk = Sent()
    writer.write(writes, None, 0)
    writer.prepare_commit(1)
    assert [len(bulk) for bulk in sent.bulks] == bulks


@pytest.mark.parametrize(
    "same",
    [
        (5, 5.0, Int64(5), Decimal128("5"), Decimal("5.00")),
        (0, -0.0, Decimal128("-0")),
        (0.5, Decimal128("0.50")),
        (Decimal128("0.1"), Decimal128("0.100"), Decimal("0.10")),
        (float("inf"), Decimal128("Infinity")),
        ({"a": [5, {"b": 0.5}]}, {"a": [5.0, {"b": Decimal128("0.5")}]}),
    ],
)
def test_numbers_that_are_equal_on_the_server_name_one_document(same: tuple[Any, ...]) -> None:
    """A bulk has no order, so it must not contain two writes of the same document."""
    assert len({Writes(None, ()).of({"_id": one})[0].key for one in same}) == 1


def test_values_that_differ_on_the_server_name_two_documents() -> None:
    ids = [1, "1", True, 0.1, Decimal128("0.1"), "0.1", {"a": 1}, [1], 2**63 - 1, float(2**63)]
    ids += [Decimal128("1E+6000"), Decimal128("1E+6001"), Decimal128("Infinity")]
    ids += [Decimal128("1.234567890123456789012345678901234"), Decimal128("1.234567890123456789012345678901235")]
    assert len({Writes(None, ()).of({"_id": one})[0].key for one in ids}) == len(ids)


@pytest.mark.parametrize("url", ["mongodb://db/?w=0", "mongodb://db/?appName=a&W=0"])
def test_unacknowledged_writes_are_refused(url: str) -> None:
    with pytest.raises(InvalidJob, match="w=0"):
        MongoSink(url, "weather", "means")
    MongoSink(url.replace("=0", "=1"), "weather", "means")
