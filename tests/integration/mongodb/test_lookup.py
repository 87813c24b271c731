"""Look up the documents of a collection for each value of a stream."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import bson
import pytest

from penstock.common.errors import SourceError
from penstock.datastream.connectors.mongodb import MongoLookup
from tools.servers.mongodb import USER, MongoServer

pytestmark = pytest.mark.mongodb
DATABASE = "looked_up"


@pytest.fixture
def collection(mongodb: MongoServer) -> Iterator[Any]:
    with mongodb.client() as client:
        yield client[DATABASE][f"c{uuid.uuid4().hex[:10]}"]


def found(server: MongoServer, collection: str, *keys: Any, **options: Any) -> list[Any]:
    """Return the results of keys that are looked up at the same time."""
    given = {"key": lambda key: key, "join": lambda key, documents: [(key, documents)], **options}
    lookup = MongoLookup(server.url, DATABASE, collection, **given)
    lookup.open(None)

    async def ask() -> list[Any]:
        return [answer for [answer] in await asyncio.gather(*map(lookup.async_invoke, keys))]

    return asyncio.run(ask())


def test_keys_of_every_type_find_their_documents(mongodb: MongoServer, collection: Any) -> None:
    token = bson.ObjectId()
    collection.insert_many([{"_id": key, "n": n} for n, key in enumerate(["a", 1, token, 2**40, {"x": 1}])])
    keys = ["a", 1, 1.0, token, 2**40, {"x": 1}, "1", None, "never"]
    answers = [[document["n"] for document in documents] for _, documents in found(mongodb, collection.name, *keys)]
    assert answers == [[0], [1], [1], [2], [3], [4], [], [], []]


def test_documents_are_found_by_another_field_and_items_of_arrays(mongodb: MongoServer, collection: Any) -> None:
    collection.insert_many(
        [{"_id": "a", "tags": ["x", "y"], "at": {"city": "u"}}, {"_id": "b", "tags": "x", "at": {"city": "v"}, "m": 1}]
    )
    [(_, x), (_, y)] = found(mongodb, collection.name, "x", "y", field="tags", fields=["m"])
    assert sorted(x, key=lambda document: str(document["_id"])) == [
        {"_id": "a", "tags": ["x", "y"]},
        {"_id": "b", "tags": "x", "m": 1},
    ]
    assert [document["_id"] for document in y] == ["a"]
    [(_, v)] = found(mongodb, collection.name, "v", field="at.city")
    assert [document["_id"] for document in v] == ["b"]


def test_a_lookup_that_cannot_work_is_an_error(mongodb: MongoServer, collection: Any) -> None:
    with pytest.raises(SourceError, match=f"has no collection {DATABASE}.{collection.name}"):
        found(mongodb, collection.name, "a")
    collection.insert_one({"_id": "a"})
    with pytest.raises(SourceError, match="the key is a object"):
        found(mongodb, collection.name, object())
    wrong = MongoLookup(mongodb.url_of(f"{USER}:wrong"), DATABASE, collection.name, key=str, join=lambda *_: [])
    with pytest.raises(SourceError, match="Authentication failed"):
        wrong.open(None)


def test_a_killed_server_is_retried(tmp_path: Any) -> None:
    with MongoServer(tmp_path) as server:
        with server.client() as client:
            client[DATABASE]["c"].insert_one({"_id": "a"})
        lookup = MongoLookup(server.url, DATABASE, "c", key=str, join=lambda _, documents: [documents], ttl=0)
        lookup.open(None)

        async def ask() -> list[Any]:
            before = await lookup.async_invoke("a")
            server.kill()
            server.restart()
            return [before, await lookup.async_invoke("a")]

        assert asyncio.run(ask()) == [[[{"_id": "a"}]]] * 2
