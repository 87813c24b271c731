"""Records do not change on an exchange. They arrive equal and of the same type at every depth, or are refused by name."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from threading import Lock
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import StateTypeError
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import RowBatch
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writers import create_writer
from tests.strategies import PLAIN_VALUES, VALUES, Color, Octets, Open, Plain, Reading, Text
from tests.unit.taskmanager.support import exchange
from tests.value_difference import difference

TARGETS = 3


def number(record: tuple[int, Any]) -> int:
    return record[0]


def partitioning(kind: Exchange) -> Partitioning:
    if kind is Exchange.CUSTOM:
        return Partitioning(kind, number, partitioner=lambda key, partitions: np.int64(key % partitions))  # type: ignore[arg-type, return-value]
    return Partitioning(kind, number) if kind is Exchange.KEY_GROUP else Partitioning(kind)


def sent(records: list[Any], kind: Exchange, targets: int = TARGETS) -> list[Any]:
    """Return the records of the receivers, sorted by number."""
    rows: list[bytes] = []
    spec = replace(exchange(partitioning(kind), targets), name="readings", user_location="job.py:7")
    writer = create_writer(spec, 0, lambda target, row: rows.append(row))
    writer.write(RowBatch(records))
    writer.flush()
    batches = [batch for batch in (decode_buffer(row).batch() for row in rows) if batch is not None]
    return [record for batch in batches for record in batch.rows().values]


def unchanged(records: list[Any], got: list[Any]) -> None:
    for n, record in got:
        assert difference(records[n][1], record) is None


@pytest.mark.parametrize("kind", Exchange, ids=lambda kind: kind.name)
@settings(max_examples=40)
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_every_sent_value_arrives_unchanged(kind: Exchange, values: list[Any]) -> None:
    records = list(enumerate(values))
    try:
        got = sent(records, kind)
    except StateTypeError as refusal:
        assert_named(refusal)
    else:
        assert len(got) == len(records) * (TARGETS if kind is Exchange.BROADCAST else 1)
        unchanged(records, got)


@given(values=st.lists(PLAIN_VALUES, max_size=4))
def test_builtin_values_are_never_refused(values: list[Any]) -> None:
    got = sent(values, Exchange.FORWARD)
    assert difference(values, got) is None


@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_records_that_are_not_tuples_arrive_unchanged(values: list[Any]) -> None:
    try:
        got = sent(values, Exchange.GLOBAL)
    except StateTypeError as refusal:
        assert_named(refusal)
    else:
        assert difference(values, got) is None


ALTERED_BY_FAST_FORMATS = [
    np.float64(21.5),
    np.bool_(False),
    np.str_("é"),
    np.datetime64("2026-11-22"),
    np.arange(6).reshape(2, 3),
    np.array(["a", None], object),
    bytearray(b"x"),
    array("d", [1.5]),
    Octets(b"x"),
    Text("t"),
    True,
    -0.0,
    [math.nan],
    Color.RED,
    Reading("s", np.float32(1.5)),
    Open("l", "r"),
    (1, [2, (3,)]),
]


@pytest.mark.parametrize("value", ALTERED_BY_FAST_FORMATS, ids=lambda value: f"{type(value).__name__} {value}")
@pytest.mark.parametrize("beside", [None, "text", b"bytes", 1.5], ids=repr)
def test_a_value_among_plain_ones_arrives_unchanged(value: Any, beside: Any) -> None:
    records = [(0, beside), (1, value), (2, beside)]
    assert difference(records, sent(records, Exchange.FORWARD)) is None
    unchanged(records, sent(records, Exchange.KEY_GROUP))


@pytest.mark.parametrize(
    "inside",
    [lambda v: v, lambda v: ("k", [v]), Plain, lambda v: lambda: v],
    ids=["bare", "nested", "dataclass", "function"],
)
@pytest.mark.parametrize(
    "make",
    [lambda: memoryview(b"x"), lambda: sys.__stderr__, lambda: (n for n in ()), Lock],
    ids=["view", "file", "generator", "lock"],
)
def test_a_value_that_cannot_be_sent_is_named(make: Callable[[], Any], inside: Callable[[Any], Any]) -> None:
    value = make()
    with pytest.raises(StateTypeError) as caught:
        sent([(0, "good"), (1, inside(value))], Exchange.KEY_GROUP)
    assert type(value).__name__ in caught.value.message
    assert (caught.value.operator, caught.value.location) == ("readings", "job.py:7")
    assert caught.value.remedy


def test_records_that_share_an_object_get_separate_copies() -> None:
    shared = [1]
    first, second = sent([("a", shared), ("b", shared)], Exchange.FORWARD)
    first[1].append(2)
    assert second == ("b", [1])


def test_a_record_that_contains_itself_arrives() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    ((_, got),) = sent([(0, loop)], Exchange.FORWARD)
    assert got[1] is got


def test_a_class_that_only_this_process_has_arrives() -> None:
    @dataclass(frozen=True)
    class Local:
        value: Any

    class Size(Enum):
        SMALL = 1

    record = (0, Local(np.float32(1.5)), Size.SMALL, lambda x: x + 1)
    ((_, local, size, add),) = sent([record], Exchange.FORWARD)
    assert (local, size, add(1)) == (Local(np.float32(1.5)), Size.SMALL, 2)
    assert type(local.value) is np.float32


def assert_named(refusal: StateTypeError) -> None:
    assert "memoryview" in refusal.message
    assert refusal.operator == "readings"
    assert refusal.location == "job.py:7"
    assert refusal.remedy
