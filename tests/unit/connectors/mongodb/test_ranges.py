"""Ranges of `_id`, found in a fake collection that has only `_id`s."""

from __future__ import annotations

from itertools import chain
from typing import Any

import bson
import pytest

from penstock.common.errors import SourceError
from penstock.connectors.mongodb.ranges import IdRange, find_ranges, packed


class Ids:
    """A fake collection with numbers as `_id`s, and an estimated count that may be wrong."""

    full_name = "d.c"

    def __init__(self, ids: list[Any], estimate: int) -> None:
        self.ids = ids
        self.estimate = estimate

    def estimated_document_count(self) -> int:
        return self.estimate

    def find(self, condition: dict[str, Any], projection: dict[str, int]) -> Found:
        bounds = condition.get("_id", {"$type": "number"})
        is_number = bounds["$type"] == "number"
        low, high = bounds.get("$gt", float("-inf")), bounds.get("$lte", float("inf"))
        return Found([value for value in self.ids if is_number and (not condition or low < value <= high)])


class Found:
    def __init__(self, ids: list[Any]) -> None:
        self.ids = ids

    def sort(self, name: str, direction: int) -> Found:
        return Found(self.ids[::direction])

    def skip(self, count: int) -> Found:
        return Found(self.ids[count:])

    def limit(self, count: int) -> list[dict[str, Any]]:
        return [{"_id": value} for value in self.ids[:count]]


@pytest.mark.parametrize("parts", [1, 2, 7, 1000])
@pytest.mark.parametrize("estimate", [0, 10, 100, 100_000])
def test_ranges_contain_every_id_once_with_any_estimated_count(parts: int, estimate: int) -> None:
    ids = list(range(100))
    ranges = [found for found, _ in find_ranges(Ids(ids, estimate), parts)]
    found_ids = [[value for value in ids if _is_in(found, value)] for found in ranges]
    assert list(chain.from_iterable(found_ids)) == ids
    if estimate == 100:
        assert len(ranges) == min(parts, 100)
    assert len(ranges) <= 2 * parts * 7


def _is_in(found: IdRange, value: int) -> bool:
    bounds = found.condition()["_id"]
    return bool(bounds.get("$gt", -1) < value <= bounds["$lte"])


def test_an_empty_collection_has_no_ranges() -> None:
    assert find_ranges(Ids([], 0), 4) == []


def test_an_id_without_a_place_in_the_order_is_an_error() -> None:
    with pytest.raises(SourceError, match="has an _id of type MaxKey"):
        find_ranges(Ids([1, bson.MaxKey()], 2), 1)


def test_a_range_continues_after_a_position() -> None:
    found = IdRange("objectId", packed(bson.ObjectId("1" * 24)), packed(bson.ObjectId("9" * 24)))
    bounds = {"$type": "objectId", "$lte": bson.ObjectId("9" * 24)}
    assert found.condition() == {"_id": {**bounds, "$gt": bson.ObjectId("1" * 24)}}
    assert found.condition(packed(bson.ObjectId("5" * 24))) == {"_id": {**bounds, "$gt": bson.ObjectId("5" * 24)}}
