"""The current content of a key's state, as tasks return it, compared with the rows of a checkpoint."""

from __future__ import annotations

import uuid
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock.common.time import Duration
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.state.peek import stored as peek
from penstock.state.peek.rows import row_of, sample_key
from penstock.state.peek.stored import NotPeekable
from penstock.state.reader import read_state
from penstock.state.rocksdb import peek as rocksdb_peek
from tests.unit.state.support import Backends


class Point(NamedTuple):
    x: int
    y: float


class Colour(Enum):
    RED = "red"


def peeked(backend: Any, state: str, key: Any) -> Any:
    row = row_of(key, state, backend.peek(state, key))
    return None if row is None else row.value


def put(backend: Any, descriptor: Any, key: Any, namespace: Any = None) -> Any:
    backend.key_context.key, backend.key_context.namespace = key, namespace
    return backend.get_state(descriptor)


def test_every_kind_of_state_is_read_with_its_current_content(backends: Backends) -> None:
    backend = backends.create()
    count = put(backend, ValueStateDescriptor("count", int), "a")
    count.update(1)
    assert peeked(backend, "count", "a") == 1
    count.update(2)
    assert peeked(backend, "count", "a") == 2
    put(backend, ListStateDescriptor("all", int), "a").add_all([3, 1, 2])
    assert peeked(backend, "all", "a") == [3, 1, 2]
    put(backend, MapStateDescriptor("by", int, str), "a").put_all({1: "x", 2: "y"})
    assert peeked(backend, "by", "a") == {1: "x", 2: "y"}
    put(backend, ReducingStateDescriptor("sum", lambda a, b: a + b, int), "a").add(4)
    assert peeked(backend, "sum", "a") == 4
    put(backend, ValueStateDescriptor("at", Point), "a").update(Point(1, 2))
    assert list(peeked(backend, "at", "a")) == [1, 2.0]


def test_an_answer_equals_that_of_a_checkpoint_and_changes_nothing(backends: Backends) -> None:
    backend = backends.create()
    put(backend, MapStateDescriptor("by", float, Point), "a").put_all({1.0: Point(1, 2.5)})
    before = backends.snapshot(backend, 1)
    backend.peek("by", "a")
    backend.peek("by", "b")
    (stored,) = read_state([before], "by", backends.storage, named=False)
    assert row_of("a", "by", backend.peek("by", "a")) == stored
    after = backends.snapshot(backend, 2)
    assert after["bytes_uploaded"] == 0 or list(read_state([after], "by", backends.storage, named=False)) == [stored]


@pytest.mark.parametrize(("key", "equal"), [(1, 1.0), (("a", 1), ("a", 1)), (None, None), ("a", "a")])
def test_a_key_is_found_by_its_json_form(backends: Backends, key: Any, equal: Any) -> None:
    backend = backends.create()
    put(backend, ValueStateDescriptor("count", int), key).update(7)
    assert peeked(backend, "count", equal) == 7
    assert peeked(backend, "count", "other") is None


def test_an_enum_is_found_by_its_value(backends: Backends) -> None:
    backend = backends.create(key_type=Colour)
    put(backend, ValueStateDescriptor("count", int), Colour.RED).update(7)
    assert peeked(backend, "count", "red") == 7
    assert peeked(backend, "count", "blue") is None


def test_a_key_without_state_has_an_empty_answer(backends: Backends) -> None:
    backend = backends.create()
    put(backend, ValueStateDescriptor("count", int), uuid.UUID(int=5))
    assert backend.peek("count", "a").sample is None
    backend.get_state(ValueStateDescriptor("count", int)).update(1)
    assert sample_key(backend.peek("count", "a")) == uuid.UUID(int=5)
    assert sample_key(backend.peek("count", str(uuid.UUID(int=5)))) == uuid.UUID(int=5)


def test_a_state_that_was_not_requested_yet_is_missing(backends: Backends) -> None:
    backend = backends.create()
    assert backend.peek("count", "a") is None


def test_expired_entries_are_hidden_and_a_look_up_does_not_renew_them(backends: Backends) -> None:
    backend = backends.create()
    config = StateTtlConfig.new_builder(Duration.of_millis(100)).update_ttl_on_read_and_write().build()
    value, items = ValueStateDescriptor("count", int), MapStateDescriptor("by", str, int)
    value.enable_time_to_live(config)
    items.enable_time_to_live(config)
    put(backend, value, "a").update(1)
    put(backend, items, "a").put("old", 1)
    backends.clock.now = 60
    put(backend, items, "a").put("new", 2)
    assert peeked(backend, "count", "a") == 1
    assert row_of("a", "count", backend.peek("count", "a")).expiry == 100
    backends.clock.now = 100
    assert peeked(backend, "count", "a") is None
    assert peeked(backend, "by", "a") == {"new": 2}


def test_state_of_windows_is_refused(backends: Backends) -> None:
    backend = backends.create()
    put(backend, ValueStateDescriptor("count", int), "a", (0, 10)).update(1)
    with pytest.raises(NotPeekable, match="belongs to windows"):
        backend.peek("count", "a")


def test_an_answer_is_limited_to_a_short_time_of_the_task(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.create()
    items = put(backend, ListStateDescriptor("all", str), "a")
    items.add_all(["x"] * peek.MAX_ITEMS)
    assert len(peeked(backend, "all", "a")) == peek.MAX_ITEMS
    items.add("x")
    with pytest.raises(NotPeekable, match="more than 1000 items"):
        backend.peek("all", "a")
    put(backend, ValueStateDescriptor("text", str), "a").update("x" * (peek.MAX_BYTES + 1))
    with pytest.raises(NotPeekable, match="256 KiB"):
        backend.peek("text", "a")


@pytest.mark.parametrize("limit", ["MAX_ITEMS", "MAX_BYTES", "MAX_SCANNED"])
def test_a_task_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(peek, limit, 5)
    taken = []

    def found() -> Any:
        for n in range(100):
            taken.append(n)
            yield n, "x"

    with pytest.raises(NotPeekable, match="more than"):
        peek.bounded(found(), str.encode, None, (lambda _: False) if limit == "MAX_SCANNED" else None)
    assert len(taken) == 6


def test_large_elements_are_encoded_up_to_the_limit(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.create()
    put(backend, ListStateDescriptor("all", bytes), "a").add_all([bytes(100_000)] * 50)
    put(backend, MapStateDescriptor("by", int, bytes), "a").put_all(dict.fromkeys(range(50), bytes(100_000)))
    given = []
    bounded = peek.bounded

    def counted(found: Any, encode: Any, encode_key: Any, is_visible: Any) -> Any:
        return bounded(found, lambda cell: given.append(cell) or encode(cell), encode_key, is_visible)

    monkeypatch.setattr(f"penstock.state.{backends.kind}.peek.bounded", counted)
    for state in ("all", "by"):
        given.clear()
        with pytest.raises(NotPeekable, match="more than 256 KiB"):
            backend.peek(state, "a")
        assert len(given) == 3


def test_the_keys_of_a_map_count_towards_the_limit(backends: Backends) -> None:
    backend = backends.create()
    put(backend, MapStateDescriptor("by", str, int), "a").put("x" * peek.MAX_BYTES, 1)
    with pytest.raises(NotPeekable, match="more than 256 KiB"):
        backend.peek("by", "a")


def test_expired_entries_do_not_count_towards_the_limit(backends: Backends) -> None:
    backend = backends.create()
    config = StateTtlConfig.new_builder(Duration.of_millis(100)).build()
    every, by = ListStateDescriptor("all", int), MapStateDescriptor("by", int, int)
    for descriptor in (every, by):
        descriptor.enable_time_to_live(config)
    put(backend, every, "a").add_all([1] * peek.MAX_ITEMS)
    put(backend, by, "a").put_all(dict.fromkeys(range(peek.MAX_ITEMS), 1))
    backends.clock.now = 60
    put(backend, every, "a").add(2)
    put(backend, by, "a").put(-1, 2)
    for state in ("all", "by"):
        with pytest.raises(NotPeekable, match="more than 1000 items"):
            backend.peek(state, "a")
    backends.clock.now = 100
    assert peeked(backend, "all", "a") == [2]
    assert peeked(backend, "by", "a") == {-1: 2}


def test_rocksdb_skips_a_limited_number_of_removed_rows(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_peek, "MAX_SKIPPED", 100)
    backend = backends.create(kind="rocksdb")
    count, by = ValueStateDescriptor("count", int), MapStateDescriptor("by", int, int)
    for key in range(3_000):
        put(backend, count, key).update(1)
    for key in range(3_000):
        put(backend, count, key).clear()
    kept = put(backend, count, "kept")
    kept.update(7)
    assert backend.peek("count", "missing").items == []
    assert peeked(backend, "count", "kept") == 7
    entries = put(backend, by, "a")
    entries.put_all(dict.fromkeys(range(1_000), 1))
    for key in range(1_000):
        entries.remove(key)
    with pytest.raises(NotPeekable, match="cannot skip them"):
        backend.peek("by", "a")


def test_every_malformed_answer_of_a_task_is_refused_with_a_code_and_the_state(backends: Backends) -> None:
    backend = backends.create()
    lifetime = StateTtlConfig.new_builder(Duration.of_hours(1)).build()
    timed = ValueStateDescriptor("timed", int)
    timed.enable_time_to_live(lifetime)
    put(backend, timed, "a").update(1)
    put(backend, MapStateDescriptor("map", int, str), "a").put_all({1: "x", 2: "y"})
    put(backend, ValueStateDescriptor("point", Point), "a").update(Point(1, 2))
    damaged = [b"", b"\x00", b"\xff\xff", b"\x93\x01", b"\xc7\x02\x7fxx", b"\xd8\x05" + bytes(16), b"\x81\xc0\xc0"]
    for name in ("timed", "map", "point"):
        whole = backend.peek(name, "a")
        answers = [msgspec.structs.replace(whole, items=[data] * len(whole.items)) for data in damaged]
        answers += [msgspec.structs.replace(whole, map_keys=[data, data]) for data in damaged if whole.map_keys]
        answers += [msgspec.structs.replace(whole, map_keys=whole.map_keys[:1])] if whole.map_keys else []
        for answer in answers:
            with suppress(NotPeekable):
                row_of("a", name, answer)
        for data in damaged:
            with suppress(NotPeekable):
                sample_key(msgspec.structs.replace(whole, sample=data), name)
    with pytest.raises(NotPeekable, match="'timed'"):
        row_of("a", "timed", msgspec.structs.replace(backend.peek("timed", "a"), items=[b""]))
    with pytest.raises(NotPeekable, match="'point'"):
        sample_key(msgspec.structs.replace(backend.peek("point", "a"), sample=b""), "point")
