"""The guarantees of every backend for the access to state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import (
    InvalidJob,
    StateNameConflict,
    StateSchemaIncompatible,
    StateTypeError,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.backend import apply_to_all_keys
from penstock.state.factory import create_backend
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange
from penstock.state.owners import FUNCTION
from tests.unit.state.support import (
    LIST,
    MAP,
    MEAN,
    SUM,
    VALUE,
    Backends,
    Clock,
    at,
    content,
    entries,
)


def test_value_state_belongs_to_key_and_namespace(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(VALUE)
    for key, namespace in [("a", None), ("b", None), ("a", (0, 10)), ("a", (10, 20))]:
        at(backend, key, namespace)
        assert state.value() is None
        state.update((key, namespace))
    at(backend, "a", (0, 10))
    assert state.value() == ("a", (0, 10))
    state.clear()
    assert state.value() is None
    at(backend, "a")
    assert state.value() == ("a", None)
    state.update(None)
    assert state.value() is None
    assert entries(backend.namespaces("value")) == [(10, 20), None]
    assert list(backend.keys("value")) == ["b"]
    assert list(backend.keys("value", (10, 20))) == ["a"]
    assert backend.entry_count() == 2


def test_equal_keys_are_one_key(backends: Backends) -> None:
    backend = backends.create()
    state, entries_of = backend.get_state(VALUE), backend.get_state(MAP)
    at(backend, (1, 2.0))
    state.update("x")
    entries_of[1] = "one"
    at(backend, (True, 2))
    assert state.value() == "x"
    assert entries_of[1.0] == "one"


def test_defaults_are_returned_for_missing_values(backends: Backends) -> None:
    backend = backends.create()
    count = backend.get_state(ValueStateDescriptor("count", int, default=0))
    seen = backend.get_state(ValueStateDescriptor("seen", list, default=[]))
    counts = backend.get_state(MapStateDescriptor("counts", str, int, default=0))
    at(backend, "a")
    count.update(count.value() + 1)
    counts["x"] += 1
    seen.value().append("must not change the default of other keys")
    assert (count.value(), counts["x"], counts["y"], counts.get("y", 7), seen.value()) == (1, 1, 0, 7, [])
    at(backend, "b")
    assert (count.value(), counts["x"], list(counts)) == (0, 0, [])


def test_list_state_is_read_and_written(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(LIST)
    at(backend, "a")
    assert list(state.get()) == []
    state.add(1)
    state.add_all([2, 3])
    state.add_all([])
    at(backend, "b", (0, 5))
    state.add("other")
    at(backend, "a")
    assert list(state) == [1, 2, 3]
    state.get().append("a copy")
    assert state.get() == [1, 2, 3]
    state.update([9])
    state.add(10)
    assert state.get() == [9, 10]
    state.update([])
    assert state.get() == []
    assert backend.entry_count() == 1
    state.add(1)
    state.clear()
    assert state.get() == []


def test_map_state_reads_like_a_dict(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(MAP)
    at(backend, "k")
    assert state.is_empty()
    assert not state
    state["a"] = 1
    state.put("b", 2)
    state.put_all({"c": 3, "d": 4})
    state.put_all({})
    state.put_all([("c", 3), ("d", 4)])
    at(backend, "other")
    state["a"] = "other"
    at(backend, "k")
    assert dict(state.items()) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert sorted(state.keys()) == sorted(state) == ["a", "b", "c", "d"]
    assert sorted(state.values()) == [1, 2, 3, 4]
    assert (len(state), state["a"], state["zzz"], state.get("zzz", 5), "b" in state, "zzz" in state) == (
        4, 1, None, 5, True, False,
    )  # fmt: skip
    del state["a"]
    state.remove("a")
    assert (state.pop("b"), state.pop("b", "gone"), state.setdefault("c", 8), state.setdefault("e", 5)) == (
        2,
        "gone",
        3,
        5,
    )
    assert dict(state.items()) == {"c": 3, "d": 4, "e": 5}
    for key in list(state):
        state.remove(key)
    assert state.is_empty()
    assert backend.entry_count() == 1
    state["z"] = 1
    state.clear()
    assert not dict(state.items())


def test_reducing_and_aggregating_state_fold_immediately(backends: Backends) -> None:
    backend = backends.create()
    total, mean = backend.get_state(SUM), backend.get_state(MEAN)
    at(backend, "a")
    assert (total.get(), mean.get()) == (None, None)
    for value in (1, 2, 6):
        total.add(value)
        mean.add(value)
    assert (total.get(), mean.get()) == (9, 3.0)
    total.clear()
    mean.clear()
    assert (total.get(), mean.get()) == (None, None)


def test_a_raw_table_is_read_and_written(backends: Backends) -> None:
    backend = backends.create()
    table, state = backend.raw_table(VALUE), backend.get_state(VALUE)
    table.put("a", 1)
    table.put("a", 2, (0, 5))
    table.put("b", 3, (0, 5))
    table.put("c", 4)
    table.remove("c")
    table.remove("missing")
    at(backend, "a", (0, 5))
    assert (table.get("a"), table.get("x"), table.get("a", (9, 9)), state.value()) == (1, None, None, 2)
    assert sorted(table.pop_namespace((0, 5))) == [("a", 2), ("b", 3)]
    assert list(table.pop_namespace((0, 5))) == []
    assert list(backend.namespaces("value")) == [None]
    assert list(table.pop_namespace(None)) == [("a", 1)]
    assert backend.entry_count() == 0
    with pytest.raises(TypeError, match="raw table"):
        backend.raw_table(LIST)


def test_live_dictionaries_are_in_snapshots_once_touched(tmp_path: Path) -> None:
    backends = Backends("hashmap", tmp_path)
    backend = backends.create()
    table = backend.raw_table(VALUE)

    def live(namespace: Any = None) -> dict[Any, Any]:
        lent = table.mapping(namespace)
        assert lent is not None
        return lent

    live().update(a=1, b=2)
    live((0, 5))["a"] = 3
    backends.snapshot(backend, 1)
    live()["a"] = 10
    del live()["b"]
    live()["c"] = 30
    table.touch(["a", "b", "c"])
    live((5, 9))["x"] = 1
    table.touch(["x"], (5, 9))
    handle = backends.snapshot(backend, 2)
    restored = backends.restored([handle])
    assert content(restored, VALUE) == {(None, "a"): 10, (None, "c"): 30, ((0, 5), "a"): 3, ((5, 9), "x"): 1}


def test_apply_to_all_keys_visits_every_key_once(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(VALUE, FUNCTION)
    for i in range(50):
        at(backend, f"k{i}")
        state.update(i)
    at(backend, "mine", (1, 2))
    apply_to_all_keys(backend, VALUE, lambda key, s: s.update(s.value() * 2) if s.value() % 2 else s.clear())  # type: ignore[attr-defined]
    assert (backend.key_context.key, backend.key_context.namespace) == ("mine", (1, 2))
    assert content([backend], VALUE, FUNCTION) == {(None, f"k{i}"): i * 2 for i in range(1, 50, 2)}


def test_a_name_belongs_to_one_state(backends: Backends) -> None:
    backend = backends.create()
    at(backend, "a")
    backend.get_state(ValueStateDescriptor("x", int)).update(5)
    assert backend.get_state(ValueStateDescriptor("x", int)).value() == 5
    for other in (
        ListStateDescriptor("x", int),
        ValueStateDescriptor("x", str),
        ReducingStateDescriptor("x", max, int),
    ):
        with pytest.raises(StateNameConflict, match="'x' is registered twice") as caught:
            backend.get_state(other)
        assert caught.value.operator == "the operator"


def test_a_type_without_encoding_is_refused_at_registration(backends: Backends) -> None:
    with pytest.raises(StateTypeError, match="'x' is declared with a type that cannot be encoded"):
        backends.create().get_state(ValueStateDescriptor("x", Backends))


def test_a_value_that_cannot_be_stored_is_refused_at_the_first_snapshot_or_earlier(backends: Backends) -> None:
    backend = backends.create()
    at(backend, "a")

    def store() -> None:
        backend.get_state(ValueStateDescriptor("x", int)).update("text")
        backends.snapshot(backend)

    with pytest.raises(StateTypeError, match="value of state 'x'"):
        store()


class Place(NamedTuple):
    x: int
    y: int


def test_keys_of_a_declared_type_are_restored_with_that_type(backends: Backends) -> None:
    backend = backends.create(key_type=Place)
    state = backend.get_state(VALUE)
    at(backend, Place(1, 2))
    state.update("x")
    handle = backends.snapshot(backend)
    (restored,) = backends.restored([handle], key_type=Place)
    restored.get_state(VALUE)
    (key,) = restored.keys("value")
    assert repr(key) == "Place(x=1, y=2)"


def test_structured_keys_without_a_declared_type_are_refused(backends: Backends) -> None:
    backend = backends.create()
    at(backend, Place(1, 2))

    def store() -> None:
        backend.get_state(VALUE).update("x")
        backends.snapshot(backend)

    with pytest.raises(StateTypeError, match="one of the keys is a"):
        store()


def test_another_type_of_key_is_refused_at_restore(backends: Backends) -> None:
    handle = backends.snapshot(backends.create(key_type=str))
    with pytest.raises(StateSchemaIncompatible, match="the keys changed"):
        backends.restored([handle], key_type=int)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InvalidJob, match="'magic'"):
        create_backend(
            "magic", key_group_range=KeyGroupRange(0, 1), max_parallelism=2, key_context=KeyContext(), clock=Clock()
        )


def test_a_bound_method_from_before_the_first_value_works_for_later_values(backends: Backends) -> None:
    backend = backends.create()
    backend.key_context.key = "k"
    add = backend.get_state(ListStateDescriptor("list", int)).add
    put = backend.get_state(MapStateDescriptor("map", str, int)).put
    for number in range(3):
        add(number)
        put(str(number), number)
    assert backend.get_state(ListStateDescriptor("list", int)).get() == [0, 1, 2]
    assert dict(backend.get_state(MapStateDescriptor("map", str, int)).items()) == {"0": 0, "1": 1, "2": 2}
