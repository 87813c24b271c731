"""A Row in state of a declared type keeps its kind through snapshots, restores and rescales, with both backends."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, NamedTuple

import pytest

from penstock.common.errors import StateSchemaIncompatible
from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.encoding.schema import incompatibility
from penstock.state.encoding.serializers import codec_for
from penstock.state.operator_state import OperatorStateStore
from penstock.state.reader import read_state
from tests.unit.state.support import KINDS, Backends, at, content

PLACE = Types.ROW_NAMED(["city", "floor"], [Types.STRING(), Types.INT()])
READING = Types.ROW_NAMED(
    ["name", "place", "around", "tags"],
    [Types.STRING(), PLACE, Types.LIST(PLACE), Types.MAP(Types.STRING(), PLACE)],
)
KEYS = [f"key {number}" for number in range(24)]
ROW_KINDS = list(RowKind)


def place(number: int) -> Row:
    return Row.of_kind(ROW_KINDS[number % 4], city=f"city {number}", floor=None if number % 5 == 0 else number)


def reading(number: int) -> Row:
    """Return a row whose parts are rows of different kinds."""
    parts = {
        "name": f"reading {number}",
        "place": None if number % 7 == 6 else place(number + 1),
        "around": [place(number + 2), place(number + 3)],
        "tags": {"a": place(number), "b": place(number + 5)},
    }
    return Row.of_kind(ROW_KINDS[number // 4 % 4], **parts)


STATES: dict[str, tuple[Any, Any]] = {
    "value": (ValueStateDescriptor("value", READING), reading),
    "value in a tuple": (
        ValueStateDescriptor("tuple", Types.TUPLE([Types.INT(), READING])),
        lambda number: (number, reading(number)),
    ),
    "list": (ListStateDescriptor("list", READING), lambda number: [reading(number), reading(number + 1)]),
    "map": (
        MapStateDescriptor("map", Types.STRING(), READING),
        lambda number: {"x": reading(number), "y": reading(number + 1)},
    ),
    "map with rows as keys in a value": (
        ValueStateDescriptor("rows", Types.MAP(PLACE, PLACE)),
        lambda number: {place(5 * number + n): place(number + n) for n in (1, 2, 3)},
    ),
    "reducing": (ReducingStateDescriptor("reducing", lambda old, new: new, READING), reading),
}


def write(state: Any, value: Any) -> None:
    if hasattr(state, "put_all"):
        state.put_all(value)
    elif hasattr(state, "update"):
        state.update(value)
    else:
        state.add(value)


@pytest.mark.parametrize(("name", "reader", "parallelism"), [*product(STATES, KINDS, [1, 3])])
def test_every_state_of_a_declared_row_type_restores_the_kinds(
    backends: Backends, name: str, reader: str, parallelism: int
) -> None:
    descriptor, value_of = STATES[name]
    backend = backends.create()
    state = backend.get_state(descriptor)
    for number, key in enumerate(KEYS):
        at(backend, key)
        write(state, value_of(number))
    expected = {(None, key): value_of(number) for number, key in enumerate(KEYS)}
    assert content([backend], descriptor) == expected
    restored = backends.restored([backends.snapshot(backend)], parallelism, kind=reader)
    assert content(restored, descriptor) == expected
    again = backends.restored([backends.snapshot(b, 2 + n) for n, b in enumerate(restored)], 2)
    assert content(again, descriptor) == expected


def test_a_kind_that_changes_between_two_checkpoints_is_in_the_second_one(backends: Backends) -> None:
    descriptor = STATES["value"][0]
    backend = backends.create()
    state = backend.get_state(descriptor)
    at(backend, "k")
    state.update(reading(0))
    backends.snapshot(backend)
    gone = reading(0)
    gone.set_row_kind(RowKind.DELETE)
    state.update(gone)
    restored = backends.restored([backends.snapshot(backend, 2)])
    assert content(restored, descriptor) == {(None, "k"): gone}


def test_operator_state_of_a_declared_row_type_restores_the_kinds() -> None:
    rows = [reading(number) for number in range(9)]
    rules = MapStateDescriptor("rules", Types.STRING(), PLACE)
    store = OperatorStateStore("the operator")
    store.get_list_state("rows", READING).extend(rows)
    store.get_broadcast_state(rules).put("a", place(3))
    other = OperatorStateStore("the operator")
    other.restore([json.loads(json.dumps(store.snapshot()))], 0, 1)
    assert list(other.get_list_state("rows", READING)) == rows
    assert other.get_broadcast_state(rules).get("a") == place(3)


def without_kinds(value: Any) -> Any:
    """Return the value with every row as an INSERT, the only kind that earlier versions stored."""
    if isinstance(value, Row):
        return Row.of([without_kinds(part) for part in value], value.get_field_names())
    if isinstance(value, list):
        return [without_kinds(part) for part in value]
    if isinstance(value, dict):
        return {key: without_kinds(part) for key, part in value.items()}
    return value


OLD_PLACE = Types.TUPLE([Types.STRING(), Types.INT()])
OLD_READING = Types.TUPLE([Types.STRING(), OLD_PLACE, Types.LIST(OLD_PLACE), Types.MAP(Types.STRING(), OLD_PLACE)])
"""The type that earlier versions stored and described rows with."""


def as_tuples(value: Any) -> Any:
    if isinstance(value, Row):
        return tuple(map(as_tuples, value))
    if isinstance(value, list):
        return [as_tuples(part) for part in value]
    if isinstance(value, dict):
        return {key: as_tuples(part) for key, part in value.items()}
    return value


@pytest.mark.parametrize("reader", KINDS)
def test_rows_of_earlier_versions_without_a_kind_are_inserts(backends: Backends, reader: str) -> None:
    backend = backends.create()
    state = backend.get_state(ValueStateDescriptor("value", OLD_READING))
    for number, key in enumerate(KEYS):
        at(backend, key)
        state.update(as_tuples(reading(number)))
    restored = backends.restored([backends.snapshot(backend)], 2, kind=reader)
    expected = {(None, key): without_kinds(reading(number)) for number, key in enumerate(KEYS)}
    assert content(restored, STATES["value"][0]) == expected


def test_inserts_have_the_same_form_as_in_earlier_versions() -> None:
    new, old = codec_for(READING, state="s"), codec_for(OLD_READING, state="s")
    value = without_kinds(reading(3))
    assert new.encode(value) == old.encode(as_tuples(value))
    deleted = without_kinds(reading(3))
    deleted.set_row_kind(RowKind.DELETE)
    assert len(new.encode(deleted)) - len(new.encode(value)) <= 6, "bytes for a kind"


def test_a_row_type_cannot_become_a_tuple_type_because_a_tuple_has_no_kind() -> None:
    row, tuple_ = codec_for(PLACE, state="s"), codec_for(OLD_PLACE, state="s")
    assert incompatibility(tuple_.schema, row.schema) == ""
    assert "was row and is tuple" in incompatibility(row.schema, tuple_.schema)
    with pytest.raises(StateSchemaIncompatible):
        tuple_.reader_of(row.schema)


class Before(NamedTuple):
    size: int
    name: str


class After(NamedTuple):
    color: str = "red"
    size: int = 0
    name: str = ""


@pytest.mark.parametrize("kind", RowKind)
def test_a_named_tuple_inside_a_row_of_any_kind_may_get_new_fields(kind: RowKind) -> None:
    def type_of(cls: Any) -> Any:
        return Types.ROW_NAMED(["place", "things"], [PLACE, Types.LIST(Types.TUPLE([cls]))])

    old, new = codec_for(type_of(Before), state="s"), codec_for(type_of(After), state="s")
    row = Row.of_kind(kind, place=place(2), things=[(Before(3, "c"),)])
    migrated = new.reader_of(old.schema).decode(old.encode(row))
    assert migrated == Row.of_kind(kind, place=place(2), things=[(After(size=3, name="c"),)])


def test_rows_with_any_value_inside_keep_kinds_and_types() -> None:
    codec = codec_for(Types.ROW_NAMED(["a", "b"], [Types.PICKLED_BYTE_ARRAY(), PLACE]), state="s")
    for kind in RowKind:
        row = Row.of_kind(kind, a={"x": (1, {2})}, b=place(3))
        back = codec.decode(codec.encode(row))
        assert back == row
        assert type(back.a["x"]) is tuple


def test_the_reader_of_snapshots_shows_the_kind(backends: Backends) -> None:
    backend = backends.create()
    state = backend.get_state(ValueStateDescriptor("value", PLACE))
    for number in (4, 7):
        at(backend, number)
        state.update(place(number))
    shown = {entry.key: entry.value for entry in read_state([backends.snapshot(backend)], "value", backends.storage)}
    assert shown == {4: ("city 4", 4), 7: {"kind": "-D", "fields": ("city 7", 7)}}
