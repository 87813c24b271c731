"""Texts of records: the same as `repr` for small values, and bounded in size and time for all others."""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
import tracemalloc
from collections import OrderedDict, deque
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest

from penstock.common.stacks.edge_records import MAX_CHARS
from penstock.common.types import Row
from penstock.taskmanager.watching import record_texts
from penstock.taskmanager.watching.record_texts import Text, texts


@dataclasses.dataclass
class Order:
    id: int
    items: Any
    secret: str = dataclasses.field(default="s", repr=False)


class Pair(NamedTuple):
    left: Any
    right: Any


class Event(msgspec.Struct):
    name: str
    values: Any


@attrs.define
class Reading:
    celsius: Any


class Colour(enum.Enum):
    RED = 1


class OwnList(list[Any]):
    pass


class OwnText:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass
class OwnTextOfDataclass(OwnText):
    text: str

    def __repr__(self) -> str:
        return f"own {self.text}"


SMALL = [
    1, -2.5, None, True, "it's", b"b\x00", bytearray(b"x"), (1,), (), [], {}, set(), frozenset({1}), {1: {"a": (2, 3)}}, {"b": 1, "a": 2},
    deque([1]), OwnList([1]), Order(1, [Order(2, [])]), Pair(1, "x"), Event("e", [1]), Reading(2), Row(a=1, b=[2]), Row(1, "two"),
    Colour.RED, Decimal("1.5"), date(2026, 1, 2), np.int64(3), np.array([1, 2]), OrderedDict(a=1), OwnText("mine"),
    OwnTextOfDataclass("x"), range(3), 10**60,
]  # fmt: skip


@pytest.mark.parametrize("value", SMALL, ids=repr)
def test_the_text_of_a_small_value_is_its_repr(value: Any) -> None:
    assert Text()(value) == repr(value)


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


HUGE = "x" * 10_000_000
LARGE = list(range(1_000_000))


@pytest.mark.parametrize(
    "value",
    [
        Order(1, LARGE), Order(1, [LARGE] * 1000), Pair(LARGE, 1), Event("e", LARGE), Reading(LARGE), Row(a=LARGE), OwnList(LARGE),
        dict.fromkeys(LARGE), set(LARGE), HUGE, HUGE.encode(), bytearray(HUGE.encode()), [HUGE] * 1000, {HUGE: HUGE}, nested(100_000),
        [[[["long text" * 100] * 1000] * 1000] * 1000] * 1000, deque(LARGE),
    ],
    ids=range(17),
)  # fmt: skip
def test_the_text_of_a_huge_value_needs_little_memory_and_time(value: Any) -> None:
    tracemalloc.start()
    began = time.thread_time()
    try:
        [text] = texts([lambda: value], ["Value"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < len(text) <= MAX_CHARS
    assert peak < 500_000
    assert time.thread_time() - began < 1
    assert "without a text" not in text


def test_a_repr_that_does_not_return_is_reported_and_frees_its_thread() -> None:
    class Endless:
        def __repr__(self) -> str:
            while True:
                pass

    began = time.monotonic()
    found = texts([lambda: 1, Endless, lambda: 3], ["int", "Endless", "int"])
    assert found == [
        "1",
        "<Endless without a text: its functions do not return>",
        "<int without a text: its functions do not return>",
    ]
    assert time.monotonic() - began < record_texts.TEXTS_S + 10
    deadline = time.monotonic() + 20
    while record_texts._free._value < record_texts._MAX_THREADS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert record_texts._free._value == record_texts._MAX_THREADS


def test_blocked_functions_use_a_limited_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_texts, "TEXTS_S", 0.01)
    end, called = threading.Event(), []

    def blocked() -> None:
        called.append(1)
        end.wait(60)

    try:
        for _ in range(record_texts._MAX_THREADS + 3):
            assert texts([blocked], ["Record"]) == ["<Record without a text: its functions do not return>"]
        assert len(called) <= record_texts._MAX_THREADS
    finally:
        end.set()
    deadline = time.monotonic() + 20
    while texts([lambda: 1], ["int"]) != ["1"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert texts([lambda: 1], ["int"]) == ["1"]
