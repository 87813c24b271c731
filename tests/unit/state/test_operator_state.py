"""Operator state: split evenly, united, or copied."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, StateNameConflict, StateSchemaIncompatible, StateTypeError
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.operator_state import OperatorStateStore

RULES = MapStateDescriptor("rules", str, default=0)


@dataclass
class Offset:
    split: str
    position: int


def snapshots_of(stores: list[OperatorStateStore]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(store.snapshot())) for store in stores]


def restored(snapshots: list[dict[str, Any]], parallelism: int) -> list[OperatorStateStore]:
    stores = []
    for subtask in range(parallelism):
        store = OperatorStateStore("the operator")
        store.restore(snapshots, subtask, parallelism)
        stores.append(store)
    return stores


@given(st.lists(st.lists(st.integers(), max_size=7), min_size=1, max_size=5), st.integers(1, 9))
def test_list_items_are_split_evenly_and_in_order(items: list[list[int]], parallelism: int) -> None:
    stores = [OperatorStateStore() for _ in items]
    for store, mine in zip(stores, items, strict=True):
        store.get_list_state("x", int).extend(mine)
    shares = [store.get_list_state("x", int) for store in restored(snapshots_of(stores), parallelism)]
    assert [item for share in shares for item in share] == [item for mine in items for item in mine]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_union_items_go_to_every_subtask() -> None:
    stores = [OperatorStateStore() for _ in range(3)]
    for i, store in enumerate(stores):
        store.get_union_list_state("x", Offset).append(Offset(f"s{i}", i))
    expected = [Offset("s0", 0), Offset("s1", 1), Offset("s2", 2)]
    assert [s.get_union_list_state("x", Offset) for s in restored(snapshots_of(stores), 2)] == [expected, expected]


def test_broadcast_state_is_copied_to_every_subtask() -> None:
    stores = [OperatorStateStore() for _ in range(2)]
    for store in stores:
        rules = store.get_broadcast_state(RULES)
        rules["a"] = (1, 2)
        rules.put_all({"b": 2, "c": 3})
        del rules["c"]
        assert (rules["a"], rules["zzz"], rules.get("zzz", 5), "b" in rules, len(rules)) == ((1, 2), 0, 5, True, 2)
    copies = [store.get_broadcast_state(RULES) for store in restored(snapshots_of(stores), 5)]
    assert [dict(copy.items()) for copy in copies] == [{"a": (1, 2), "b": 2}] * 5
    copies[0].clear()
    assert copies[0].is_empty()
    assert sorted(copies[1].keys()) == ["a", "b"]
    assert list(copies[1]) == ["a", "b"]
    assert list(copies[1].values()) == [(1, 2), 2]


def test_the_list_is_the_state_and_the_handle_is_always_the_same() -> None:
    store = OperatorStateStore()
    store.get_list_state("x").append({1, 2})
    store.get_list_state("x").append((3,))
    assert restored(snapshots_of([store]), 1)[0].get_list_state("x") == [{1, 2}, (3,)]


def test_state_that_no_function_requests_is_kept_once() -> None:
    stores = [OperatorStateStore() for _ in range(2)]
    for i, store in enumerate(stores):
        store.get_list_state("list").append(i)
        store.get_union_list_state("union").append(i)
        store.get_broadcast_state(RULES)["k"] = 7
    snapshots = snapshots_of(stores)
    for parallelism in (3, 1, 2):
        snapshots = snapshots_of(restored(snapshots, parallelism))
    last = restored(snapshots, 1)[0]
    assert last.get_list_state("list") == [0, 1]
    assert last.get_union_list_state("union") == [0, 1]
    assert dict(last.get_broadcast_state(RULES).items()) == {"k": 7}


def test_empty_state_is_not_stored() -> None:
    store = OperatorStateStore()
    store.get_list_state("x")
    store.get_broadcast_state(RULES)
    assert store.snapshot() == {}


def test_a_name_belongs_to_one_mode_and_type() -> None:
    store = OperatorStateStore("the operator")
    store.get_list_state("x", int).append(1)
    with pytest.raises(StateNameConflict, match="is split state, but the function requests union") as caught:
        store.get_union_list_state("x", int)
    assert caught.value.operator == "the operator"
    with pytest.raises(StateNameConflict, match="different types"):
        store.get_list_state("x", str)
    with pytest.raises(StateNameConflict, match="is split state, but the function requests broadcast"):
        restored(snapshots_of([store]), 1)[0].get_broadcast_state(MapStateDescriptor("x"))


def test_types_are_checked_at_snapshot_and_restore() -> None:
    store = OperatorStateStore("the operator")
    store.get_list_state("x", int).append(1)
    after = restored(snapshots_of([store]), 1)[0]
    with pytest.raises(StateSchemaIncompatible, match="was int and is str"):
        after.get_list_state("x", str)
    assert after.get_list_state("x", float) == [1.0]
    store.get_list_state("y", int).append("text")
    with pytest.raises(StateTypeError, match="'y'"):
        store.snapshot()


def test_a_list_state_is_requested_and_used_as_in_flink() -> None:
    store = OperatorStateStore("the operator")
    state = store.get_list_state(ListStateDescriptor("offsets", Offset))
    state.update([Offset("a", 1)])
    state.add(Offset("b", 2))
    state.add_all([Offset("c", 3)])
    [again] = restored(snapshots_of([store]), 1)
    assert list(again.get_list_state(ListStateDescriptor("offsets", Offset)).get()) == [
        Offset("a", 1),
        Offset("b", 2),
        Offset("c", 3),
    ]


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (
            ListStateDescriptor("offsets", int, ttl=1000),
            "'offsets' has a time to live, but only keyed state supports it",
        ),
        (ValueStateDescriptor("offset", int), "takes a name and a type, or a ListStateDescriptor"),
    ],
)
def test_an_invalid_descriptor_of_operator_list_state_is_refused(descriptor: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        OperatorStateStore("the operator").get_list_state(descriptor)
