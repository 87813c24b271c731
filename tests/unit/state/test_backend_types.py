"""Restores into programs whose types have changed."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import (
    StateSchemaIncompatible,
    StateTypeError,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.hashmap.handles import HashMapListState, HashMapMapState, HashMapValueState
from tests.unit.state.support import (
    Backends,
    at,
    plain,
)


@dataclass
class AccV1:
    count: int
    name: str


class PairV1(NamedTuple):
    a: int
    b: int


class PairV2(NamedTuple):
    b: float
    c: str = "new"


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        (
            AccV1,
            AccV1(1, "x"),
            make_dataclass("AccV2", [("count", float), ("extra", str, "d")]),
            "AccV2(count=1.0, extra='d')",
        ),
        (PairV1, PairV1(1, 2), PairV2, "PairV2(b=2.0, c='new')"),
        (int, 5, float, "5.0"),
    ],
    ids=["dataclass", "named tuple", "number"],
)
def test_a_compatible_type_reads_old_values(backends: Backends, old: Any, value: Any, new: Any, expected: str) -> None:
    backend = backends.create()
    state = backend.get_state(ValueStateDescriptor("x", old))
    elements = backend.get_state(ListStateDescriptor("l", old))
    entries_of = backend.get_state(MapStateDescriptor("m", str, old))
    at(backend, "a")
    state.update(value)
    elements.add(value)
    entries_of["e"] = value
    handle = backends.snapshot(backend, 1)
    (changed,) = backends.restored([handle], owned=True)
    new_states = ValueStateDescriptor("x", new), ListStateDescriptor("l", new), MapStateDescriptor("m", str, new)
    at(changed, "a")
    assert [repr(plain(changed.get_state(d))) for d in new_states] == [
        expected,
        f"[{expected}]",
        f"{{'e': {expected}}}",
    ]
    (again,) = backends.restored([backends.snapshot(changed, 2)])
    at(again, "a")
    assert [repr(plain(again.get_state(d))) for d in new_states] == [expected, f"[{expected}]", f"{{'e': {expected}}}"]


@pytest.mark.parametrize(
    "new",
    [ValueStateDescriptor("x", str), ListStateDescriptor("x", int), ReducingStateDescriptor("x", max, int)],
    ids=["type", "kind", "reducing"],
)
def test_an_incompatible_state_is_refused(backends: Backends, new: Any) -> None:
    backend = backends.create()
    at(backend, "a")
    backend.get_state(ValueStateDescriptor("x", int)).update(1)
    (changed,) = backends.restored([backends.snapshot(backend)])
    with pytest.raises(StateSchemaIncompatible, match="'x'"):
        changed.get_state(new)


def test_a_map_with_other_keys_is_refused(backends: Backends) -> None:
    backend = backends.create()
    at(backend, "a")
    backend.get_state(MapStateDescriptor("x", str, int))["k"] = 1
    (changed,) = backends.restored([backends.snapshot(backend)])
    with pytest.raises(StateSchemaIncompatible, match="map key"):
        changed.get_state(MapStateDescriptor("x", int, int))


@pytest.mark.parametrize(
    "store",
    [
        lambda backend: backend.get_state(ValueStateDescriptor("x", int)).update(1.5),
        lambda backend: backend.get_state(ListStateDescriptor("x", int)).add(1.5),
        lambda backend: backend.get_state(ListStateDescriptor("x", int)).add_all([1.5]),
        lambda backend: backend.get_state(ListStateDescriptor("x", int)).update([1.5]),
        lambda backend: backend.get_state(MapStateDescriptor("x", str, int)).put("a", 1.5),
        lambda backend: backend.get_state(MapStateDescriptor("x", str, int)).put_all({"a": 1.5}),
        lambda backend: backend.get_state(ReducingStateDescriptor("x", max, int)).add(1.5),
    ],
    ids=["value", "add", "add_all", "list", "put", "put_all", "reducing"],
)
def test_a_first_value_of_another_type_than_declared_is_refused_when_it_is_stored(
    backends: Backends, store: Any
) -> None:
    backend = backends.create()
    at(backend, "key")
    with pytest.raises(StateTypeError, match="'x'"):
        store(backend)


def test_later_values_of_a_checked_type_are_not_checked_again(tmp_path: Path) -> None:
    """A handle that accesses its dictionary directly replaces the first one after the check."""
    backend = Backends("hashmap", tmp_path).create()
    at(backend, "key")
    value = backend.get_state(ValueStateDescriptor("v", int))
    update = value.update
    update(1)
    update(2)
    elements = backend.get_state(ListStateDescriptor("l", int))
    elements.add(1)
    entries_of = backend.get_state(MapStateDescriptor("m", str, int))
    entries_of.put("a", 1)
    assert [type(state) for state in (value, elements, entries_of)] == [
        HashMapValueState,
        HashMapListState,
        HashMapMapState,
    ]
    assert (value.value(), elements.get(), entries_of.get("a")) == (2, [1], 1)
