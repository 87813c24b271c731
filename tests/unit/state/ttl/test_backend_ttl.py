"""Time-to-live, on every backend."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.unit.state.support import (
    KINDS,
    Backends,
    at,
    plain,
)

TTL = timedelta(milliseconds=100)


def test_values_expire_after_their_time_to_live(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(ValueStateDescriptor("x", int, ttl=TTL, default=-1))
    total = backend.get_state(ReducingStateDescriptor("sum", max, int, ttl=TTL))
    at(backend, "a")
    state.update(1)
    total.add(1)
    backends.clock.now = 99
    assert (state.value(), total.get()) == (1, 1)
    backends.clock.now = 100
    assert (state.value(), total.get()) == (-1, None)
    assert backend.entry_count() == 0


def test_reads_renew_only_if_configured(backends: Backends) -> None:
    renewing = StateTtlConfig.new_builder(TTL).update_ttl_on_read_and_write().build()
    backend = backends.create()
    states = [
        backend.get_state(descriptor)
        for descriptor in (
            ValueStateDescriptor("v", int, ttl=renewing),
            ListStateDescriptor("l", int, ttl=renewing),
            MapStateDescriptor("m", str, int, ttl=renewing),
            ValueStateDescriptor("w", int, ttl=TTL),
        )
    ]
    value, elements, entries_of, plain_value = states
    at(backend, "a")
    value.update(1)
    elements.add(1)
    entries_of["x"] = 1
    plain_value.update(1)
    for now in (60, 120, 180):
        backends.clock.now = now
        assert (value.value(), elements.get(), entries_of["x"]) == (1, [1], 1)
    assert plain_value.value() is None
    backends.clock.now = 240
    assert dict(entries_of.items()) == {"x": 1}
    backends.clock.now = 339
    assert dict(entries_of.items()) == {"x": 1}
    assert (value.value(), elements.get()) == (None, [])


def test_an_expired_value_is_returned_once_if_configured(backends: Backends) -> None:
    seen = StateTtlConfig.new_builder(TTL).return_expired_if_not_cleaned_up().disable_cleanup_in_background().build()
    backend = backends.create()
    value = backend.get_state(ValueStateDescriptor("v", int, ttl=seen))
    elements = backend.get_state(ListStateDescriptor("l", int, ttl=seen))
    entries_of = backend.get_state(MapStateDescriptor("m", str, int, ttl=seen))
    at(backend, "a")
    value.update(1)
    elements.add(1)
    entries_of["x"] = 1
    entries_of["y"] = 1
    backends.clock.now = 500
    assert (value.value(), value.value(), elements.get(), elements.get()) == (1, None, [1], [])
    assert (entries_of["x"], entries_of["x"], dict(entries_of.items()), entries_of.is_empty()) == (
        1,
        None,
        {"y": 1},
        True,
    )


def test_elements_and_entries_expire_separately(backends: Backends) -> None:
    backend = backends.create()
    elements = backend.get_state(ListStateDescriptor("l", int, ttl=TTL))
    entries_of = backend.get_state(MapStateDescriptor("m", str, int, ttl=TTL, default=0))
    at(backend, "a")
    for now, name in ((0, "x"), (50, "y"), (90, "z")):
        backends.clock.now = now
        elements.add(now)
        entries_of[name] = now
    backends.clock.now = 120
    assert elements.get() == [50, 90]
    assert (entries_of["x"], "x" in entries_of, "y" in entries_of) == (0, False, True)
    assert dict(entries_of.items()) == {"y": 50, "z": 90}
    assert sorted(entries_of.values()) == [50, 90]
    backends.clock.now = 1000
    assert (elements.get(), dict(entries_of.items()), entries_of.is_empty()) == ([], {}, True)
    assert backend.entry_count() == 0


def test_expiry_times_survive_a_restore_and_time_continues(backends: Backends) -> None:
    backend = backends.create()
    descriptors = [
        ValueStateDescriptor("v", int, ttl=TTL),
        ListStateDescriptor("l", int, ttl=TTL),
        MapStateDescriptor("m", str, int, ttl=TTL),
    ]
    value, elements, entries_of = map(backend.get_state, descriptors)
    at(backend, "a")
    value.update(1)
    elements.add(1)
    entries_of["x"] = 1
    backends.clock.now = 50
    elements.add(2)
    entries_of["y"] = 2
    handle = backends.snapshot(backend)
    backends.clock.now = 99
    for kind in KINDS:
        (restored,) = backends.restored([handle], kind=kind)
        at(restored, "a")
        backends.clock.now = 99
        assert [plain(restored.get_state(d)) for d in descriptors] == [1, [1, 2], {"x": 1, "y": 2}]
        backends.clock.now = 120
        assert [plain(restored.get_state(d)) for d in descriptors] == [None, [2], {"y": 2}]


@pytest.mark.parametrize("make", [ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor])
def test_a_time_to_live_can_be_added_and_removed_at_a_restore(backends: Backends, make: Any) -> None:
    backend = backends.create()
    at(backend, "a")
    state = backend.get_state(make("x"))
    [lambda: state.update(1), lambda: state.add(1), lambda: state.put("k", 1)][
        [ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor].index(make)
    ]()
    expected = plain(state)
    handle = backends.snapshot(backend, 1)
    backends.clock.now = 1000
    (with_ttl,) = backends.restored([handle], owned=True)
    at(with_ttl, "a")
    assert plain(with_ttl.get_state(make("x", ttl=TTL))) == expected
    second = backends.snapshot(with_ttl, 2)
    (without,) = backends.restored([second], owned=True)
    backends.clock.now = 5000
    at(without, "a")
    assert plain(without.get_state(make("x"))) == expected
    (again,) = backends.restored([backends.snapshot(without, 3)])
    at(again, "a")
    assert plain(again.get_state(make("x"))) == expected


def test_expired_entries_are_removed_without_reads(backends: Backends) -> None:
    config = StateTtlConfig.new_builder(TTL).cleanup_incrementally(20, False).build()
    backend = backends.create()
    value = backend.get_state(ValueStateDescriptor("v", int, ttl=config))
    elements = backend.get_state(ListStateDescriptor("l", int, ttl=config))
    entries_of = backend.get_state(MapStateDescriptor("m", str, int, ttl=config))
    for i in range(100):
        at(backend, f"k{i}")
        value.update(i)
        elements.add(i)
        entries_of["x"] = i
    backends.clock.now = 50
    at(backend, "k7")
    elements.add(8)
    entries_of["y"] = 8
    backends.clock.now = 110
    at(backend, "other")
    for _ in range(30):
        value.value()
        elements.get()
        entries_of.get("x")
    assert backend.entry_count() == 2
    at(backend, "k7")
    assert (elements.get(), dict(entries_of.items())) == ([8], {"y": 8})


def test_full_snapshots_omit_expired_entries_if_configured(tmp_path: Path) -> None:
    backends = Backends("hashmap", tmp_path)
    config = StateTtlConfig.new_builder(TTL).cleanup_full_snapshot().disable_cleanup_in_background().build()
    backend = backends.create()
    value = backend.get_state(ValueStateDescriptor("v", int, ttl=config))
    for i in range(10):
        at(backend, i)
        backends.clock.now = i * 30
        value.update(i)
    backends.snapshot(backend)
    assert backend.entry_count() == 4
