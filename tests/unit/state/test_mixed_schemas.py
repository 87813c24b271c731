"""Former subtasks may have stored one state in different ways, if only some of them have requested and migrated it.

A restore reads each row with the description with which it was stored, for any backend that wrote it or reads it.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any, NamedTuple

import pytest

from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from penstock.state.key_groups import key_group
from penstock.state.operator_state import OperatorStateStore
from penstock.state.reader import read_state
from tests.unit.state.support import KINDS, MAX_PARALLELISM, Backends

KEYS = [f"key {number}" for number in range(40)]


class Before(NamedTuple):
    size: int
    name: str


class After(NamedTuple):
    color: str = "red"
    size: int = 0
    name: str = ""


def descriptor(layout: str, cls: Any, ttl: timedelta | None) -> StateDescriptor:
    if layout == "map":
        return MapStateDescriptor("things", str, cls, ttl=ttl)
    return (ListStateDescriptor if layout == "list" else ValueStateDescriptor)("things", cls, ttl=ttl)


def put(backend: Any, layout: str, state: Any, key: str, value: Any) -> None:
    backend.key_context.key, backend.key_context.namespace = key, None
    if layout == "map":
        state.put("m", value)
    elif layout == "list":
        state.add(value)
    else:
        state.update(value)


def get(backend: Any, layout: str, state: Any, key: str) -> Any:
    backend.key_context.key, backend.key_context.namespace = key, None
    if layout == "map":
        return state.get("m")
    return state.get()[0] if layout == "list" else state.value()


def owner(backends: list[Any], key: str) -> Any:
    group = key_group(key, MAX_PARALLELISM)
    return next(backend for backend in backends if group in backend.key_group_range)


BOTH = "a field in front and a time to live"
MIGRATIONS: dict[str, tuple[Any, Any, timedelta | None, timedelta | None]] = {
    "a field in front": (Before, After, None, None),
    "a time to live": (Before, Before, None, timedelta(hours=1)),
    "no time to live any more": (Before, Before, timedelta(hours=1), None),
    BOTH: (Before, After, None, timedelta(hours=1)),
}


def expected(cls: Any, number: int) -> Any:
    return After(size=number, name=f"n{number}") if cls is After else Before(number, f"n{number}")


@pytest.mark.parametrize(
    ("layout", "migration"),
    [*product(["value"], MIGRATIONS), ("list", BOTH), ("map", "a field in front"), ("map", BOTH)],
)
@pytest.mark.parametrize(
    ("second", "third"),
    [pytest.param(*pair, marks=[pytest.mark.slow] if len({*pair}) == 1 else []) for pair in product(KINDS, KINDS)],
)
def test_a_rescale_reads_state_that_only_one_subtask_has_migrated(
    backends: Backends, layout: str, migration: str, second: str, third: str
) -> None:
    old_cls, new_cls, old_ttl, new_ttl = MIGRATIONS[migration]
    old, new = descriptor(layout, old_cls, old_ttl), descriptor(layout, new_cls, new_ttl)
    (first,) = backends.restored([])
    state = first.get_state(old)
    for number, key in enumerate(KEYS):
        put(first, layout, state, key, Before(number, f"n{number}"))

    two = backends.restored([backends.snapshot(first)], parallelism=2, kind=second)
    two[0].get_state(new)  # the function of the other subtask has no record and does not request the state
    mixed = [backends.snapshot(backend, 10 + number) for number, backend in enumerate(two)]
    assert_all_readable(mixed, backends, layout)

    (carrying,) = backends.restored(mixed, kind=third)  # no function requests the state
    carried = [backends.snapshot(carrying, 20)]
    assert_all_readable(carried, backends, layout)
    for handles, kind in ((mixed, third), (carried, second)):
        restored = backends.restored(handles, parallelism=3, kind=kind)
        states = {backend: backend.get_state(new) for backend in restored}
        for number, key in enumerate(KEYS):
            backend = owner(restored, key)
            assert get(backend, layout, states[backend], key) == expected(new_cls, number)
        again = backends.restored([backends.snapshot(each, 30 + at) for at, each in enumerate(restored)], kind=second)
        state = again[0].get_state(new)
        assert [get(again[0], layout, state, key) for key in KEYS] == [expected(new_cls, at) for at in range(len(KEYS))]


def assert_all_readable(handles: list[dict[str, Any]], backends: Backends, layout: str) -> None:
    """Check that `penstock state read` shows each value with the fields with which it was stored."""
    rows = list(read_state(handles, "things", backends.storage))
    assert sorted(row.key for row in rows) == sorted(KEYS)
    for row in rows:
        (value,) = [row.value] if layout == "value" else row.value.values() if layout == "map" else row.value
        assert value["name"] == f"n{KEYS.index(row.key)}"


@pytest.mark.parametrize("mode", ["get_list_state", "get_union_list_state"])
def test_operator_state_that_one_subtask_has_migrated_is_read_completely(mode: str) -> None:
    def restored(snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> OperatorStateStore:
        store = OperatorStateStore("op")
        store.restore(snapshots, subtask, parallelism)
        return store

    first = OperatorStateStore("op")
    getattr(first, mode)("things", Before).extend(Before(n, f"n{n}") for n in range(6))
    two = [restored([first.snapshot()], subtask, 2) for subtask in range(2)]
    if mode == "get_list_state":
        getattr(two[1], mode)("things", After)
        want = [After(size=n, name=f"n{n}") for n in range(6)]
    else:
        getattr(two[1], mode)("things", After)
        want = [After(size=n, name=f"n{n}") for n in (*range(6), *range(6))]
    snapshots = [store.snapshot() for store in two]
    assert list(getattr(restored(snapshots, 0, 1), mode)("things", After)) == want
    carried = [restored(snapshots, 0, 1).snapshot()]
    assert list(getattr(restored(carried, 0, 1), mode)("things", After)) == want


def test_broadcast_state_is_read_with_the_schema_of_the_chosen_copy() -> None:
    first = OperatorStateStore("op")
    first.get_broadcast_state(MapStateDescriptor("rules", str, Before)).put("a", Before(1, "n1"))
    two = [OperatorStateStore("op") for _ in range(2)]
    for subtask, store in enumerate(two):
        store.restore([first.snapshot()], subtask, 2)
    two[0].get_broadcast_state(MapStateDescriptor("rules", str, After))
    snapshots = [store.snapshot() for store in two]
    for subtask in range(3):
        store = OperatorStateStore("op")
        store.restore(snapshots, subtask, 3)
        rules = store.get_broadcast_state(MapStateDescriptor("rules", str, After))
        assert dict(rules.items()) == {"a": After(size=1, name="n1")}


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_are_requested_during_an_upload_keep_one_encoding(tmp_path: Any, kind: str) -> None:
    backends = Backends(kind, tmp_path)
    keys = [f"key {number}" for number in range(2_000)]  # enough for an incremental snapshot
    other = ValueStateDescriptor("other", int)
    old = ValueStateDescriptor("things", Before)
    backend = backends.create()
    for state, value in ((backend.get_state(old), Before(1, "a")), (backend.get_state(other), 7)):
        for key in keys:
            put(backend, "value", state, key, value)
    first = backends.snapshot(backend, 1)
    (restored,) = backends.restored([first], owned=True)
    upload = restored.snapshot(2)
    # The first state has another encoding now, and the second one has the same.
    things = restored.get_state(ValueStateDescriptor("things", After))
    restored.get_state(other)
    second = upload.run(backends.storage)
    restored.notify_checkpoint_complete(2)
    put(restored, "value", things, keys[0], After("blue", 2, "b"))
    third = backends.snapshot(restored, 3)
    (last,) = backends.restored([third])
    found = last.get_state(ValueStateDescriptor("things", After))
    values = {key: get(last, "value", found, key) for key in keys}
    assert values == {key: After("red", 1, "a") for key in keys} | {keys[0]: After("blue", 2, "b")}
    if kind == "hashmap":
        kept = {file["path"] for file in second["files"]} & {file["path"] for file in third["files"]}
        assert not kept, "files with the old and the new encoding are mixed"
    backends.close()
