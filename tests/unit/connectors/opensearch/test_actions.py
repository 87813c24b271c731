"""Actions become the lines of a bulk request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest

from penstock.common.errors import SinkError
from penstock.connectors.opensearch.actions import requests_of


@dataclass
class Mean:
    station: str
    celsius: float


def lines(action: Any, index: str = "means") -> list[Any]:
    (request,) = requests_of(None, lambda record: action, index)
    assert request.lines.endswith(b"\n")
    return [orjson.loads(line) for line in request.lines.splitlines()]


def test_a_document_is_the_fields_without_underscore_or_the_source() -> None:
    expected = [{"index": {"_index": "means", "_id": "A1"}}, {"station": "A1", "celsius": 2.5}]
    assert lines({"_id": "A1", "station": "A1", "celsius": 2.5}) == expected
    assert lines({"_id": "A1", "_source": Mean("A1", 2.5)}) == expected
    assert lines({"_id": "A1", "_index": "other", "_routing": "eu", "_source": {}}) == [
        {"index": {"_index": "other", "_id": "A1", "routing": "eu"}},
        {},
    ]


def test_operations_become_lines_of_the_bulk_protocol() -> None:
    assert lines({"_op_type": "delete", "_id": 7}) == [{"delete": {"_index": "means", "_id": "7"}}]
    assert lines({"_op_type": "update", "_id": 7, "n": 1})[1] == {"doc": {"n": 1}}
    upsert = {"doc": {"n": 1}, "doc_as_upsert": True}
    assert lines({"_op_type": "update", "_id": 7, **upsert})[1] == upsert
    assert lines({"_op_type": "create", "n": 1}) == [{"create": {"_index": "means"}}, {"n": 1}]


def test_values_of_libraries_become_plain_json() -> None:
    at = datetime(2013, 1, 1, tzinfo=UTC)
    document = {
        "a": np.float64(1.5),
        "b": np.int32(2),
        "c": Decimal("1.10"),
        "d": at,
        "e": np.array([1, 2]),
        "f": "a\nb",
    }
    first, second = lines({"_id": np.int64(5), "_source": document})
    assert first["index"]["_id"] == "5"
    assert second == {"a": 1.5, "b": 2, "c": 1.1, "d": "2013-01-01T00:00:00Z", "e": [1, 2], "f": "a\nb"}


def test_a_record_has_any_number_of_actions() -> None:
    assert requests_of(1, lambda record: None, "i") == []
    assert [r.id for r in requests_of(1, lambda record: [{"_id": "a"}, {"_id": "b"}], "i")] == ["a", "b"]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("text", "a str is not an action"),
        ({"_op_type": "upsert", "_id": 1}, "_op_type='upsert'"),
        ({"_op_type": "delete"}, "delete has no _id"),
        ({"_id": ""}, "the _id is empty"),
        ({"_id": 1, "_source": {}, "n": 1}, "_source and also n"),
        ({"_id": 1, "_source": {"x": object()}}, "cannot be written as JSON"),
    ],
)
def test_an_invalid_action_is_an_error(action: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message) as error:
        requests_of(None, lambda record: [action], "means")
    assert error.value.remedy


def test_an_action_without_an_index_is_an_error() -> None:
    with pytest.raises(SinkError, match="has no _index"):
        lines({"_id": 1}, index="")
