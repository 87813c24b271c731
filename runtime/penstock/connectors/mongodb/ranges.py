"""Ranges of `_id`. MongoDB compares only values of the same type, so each range has one type. All numbers count as one type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.common.errors import SourceError
from penstock.connectors.mongodb.client import package
from penstock.connectors.mongodb.documents import stored_options

TYPES = ("null", "number", "string", "object", "binData", "objectId", "bool", "date", "timestamp")
"""The types of `_id` that can be compared, in MongoDB's order."""
_ENDS = ("MinKey", "MaxKey")


@dataclass(frozen=True)
class IdRange:
    """A range from `after` (excluded) to `up_to` (included). Both are values of `_id` as text. "" means that the range has no such bound."""

    type: str
    after: str = ""
    up_to: str = ""

    def condition(self, position: str | None = None) -> dict[str, Any]:
        """Return the query for the range's documents after a position.

        >>> IdRange("string", up_to=packed("m")).condition()
        {'_id': {'$type': 'string', '$lte': 'm'}}
        >>> IdRange("number").condition(packed(float("nan")))
        {'_id': {'$type': 'number', '$gte': -inf}}
        """
        bounds: dict[str, Any] = {"$type": self.type}
        after = self.after if position is None else position
        if after:
            value = unpacked(after)
            if isinstance(value, float) and math.isnan(value):  # NaN is the least number, but `$gt` NaN matches nothing
                bounds["$gte"] = -math.inf
            else:
                bounds["$gt"] = value
        if self.up_to:
            bounds["$lte"] = unpacked(self.up_to)
        return {"_id": bounds}


def packed(value: Any) -> str:
    """Return a value of `_id` as text, with its type.

    >>> unpacked(packed({"a": [1, 2.0]}))
    {'a': [1, 2.0]}
    """
    return str(_json().dumps({"v": value}, json_options=_json_options()))


def unpacked(text: str) -> Any:
    return _json().loads(text, json_options=_json_options())["v"]


def _json() -> Any:
    return package("bson.json_util")


def _json_options() -> Any:
    options = stored_options()
    return _json().JSONOptions(
        json_mode=_json().JSONMode.CANONICAL,
        tz_aware=True,
        tzinfo=options.tzinfo,
        uuid_representation=options.uuid_representation,
    )


def find_ranges(collection: Any, parts: int) -> list[tuple[IdRange, int]]:
    """Return ranges that cover all existing documents, each with its approximate number of documents.

    The ranges have about equal numbers of documents. If `_id`s have several types, the result has some more ranges than `parts`.

    The function reads the index of `_id` once.

    Raises:
        SourceError: an `_id` cannot be compared.
    """
    found: list[tuple[IdRange, int]] = []
    _check_ends(collection)
    step = max(1, math.ceil(collection.estimated_document_count() / parts))
    for kind in TYPES:
        last = _one(collection, {"_id": {"$type": kind}}, -1)
        if last is None:
            continue
        after, up_to = "", packed(last["_id"])
        while after != up_to:
            rest = IdRange(kind, after, up_to)
            end = _one(collection, rest.condition(), 1, step - 1)
            bound = up_to if end is None else packed(end["_id"])
            found.append((IdRange(kind, after, bound), step))
            after = bound
            if len(found) % (2 * parts) == 0:
                step *= 2  # after a crash, a server may report fewer documents than it has
    return found


def _one(collection: Any, condition: Mapping[str, Any], direction: int, skip: int = 0) -> Any:
    cursor = collection.find(condition, {"_id": 1}).sort("_id", direction).skip(skip).limit(1)
    return next(iter(cursor), None)


def _check_ends(collection: Any) -> None:
    for direction in (1, -1):
        end = _one(collection, {}, direction)
        if end is not None and type(end["_id"]).__name__ in _ENDS:
            raise SourceError(
                f"collection {collection.full_name} has an _id of type {type(end['_id']).__name__}, which cannot be compared",
                remedy="give that document an _id of another type",
            )
