"""Records of one class travel as tuples of their fields if they consist only of fields. They arrive equal to pickled
ones."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.taskmanager.exchange.records import FIELDS, OBJECTS, decode_records, encode_records
from tests.strategies import PLAIN_VALUES
from tests.value_difference import difference


class Bid(msgspec.Struct):
    auction: Any
    price: Any = None


class Keyed(msgspec.Struct, kw_only=True):
    auction: Any


class Open(msgspec.Struct, dict=True):
    auction: Any


class Halved(msgspec.Struct):
    """A class that halves its value whenever it is created. Pickle creates Structs by a call, so both forms halve once
    more."""

    price: float

    def __post_init__(self) -> None:
        self.price /= 2


class Named(NamedTuple):
    a: Any
    b: Any


@dataclass
class Plain:
    a: Any
    b: Any = None


@dataclass(frozen=True)
class Frozen:
    a: Any


@dataclass
class Checked:
    a: Any
    seen: list[Any] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.seen.append("made")


@dataclass
class Restored:
    a: Any

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.a = ("restored", state["a"])


@dataclass
class WithDefault:
    a: Any = 1
    b: Any = 2


@dataclass
class Things(list[Any]):
    a: Any = None


def travel(values: list[Any]) -> tuple[int, list[Any]]:
    form, data = encode_records(values)
    return form, decode_records(form, memoryview(data))


@pytest.mark.parametrize("cls", [Bid, Named, Plain])
@given(rows=st.lists(st.tuples(PLAIN_VALUES, PLAIN_VALUES), min_size=1, max_size=4))
def test_fields_with_any_plain_value_arrive_unchanged(cls: Any, rows: list[tuple[Any, Any]]) -> None:
    values = [cls(*row) for row in rows]
    form, got = travel(values)
    assert form == FIELDS
    assert difference(values, got) is None


@pytest.mark.parametrize("value", [Frozen(1), Checked(1), Halved(4.0)], ids=repr)
def test_objects_are_created_in_the_same_way_as_by_pickle(value: Any) -> None:
    form, got = travel([value, value])
    assert form == FIELDS
    assert got == [Halved(2.0)] * 2 if isinstance(value, Halved) else difference([value, value], got) is None


@pytest.mark.parametrize("value", [Keyed(auction=1), Restored(1), Bid(Bid(1)), Things(a=1), [Bid(1)]], ids=repr)
def test_objects_with_more_than_plain_fields_are_pickled(value: Any) -> None:
    form, (got,) = travel([value])
    assert form == OBJECTS
    assert got == (Restored(("restored", 1)) if isinstance(value, Restored) else value)


def test_records_of_several_classes_are_pickled() -> None:
    values = [Bid(1), Plain(1), None]
    assert travel(values) == (OBJECTS, values)


def test_attributes_in_addition_to_the_fields_arrive() -> None:
    extended, changed = Plain(1), WithDefault()
    extended.more = [1]  # type: ignore[attr-defined]
    del changed.a
    changed.c = 3  # type: ignore[attr-defined]
    for value in (extended, changed):
        form, (got,) = travel([value])
        assert form == OBJECTS
        assert vars(got) == vars(value)
    assert travel([Open(1)])[0] == OBJECTS


def test_a_class_of_the_script_is_sent_once_per_buffer_and_restored() -> None:
    class Local(msgspec.Struct):
        a: int

    for _ in range(2):
        form, got = travel([Local(1), Local(2)])
        assert form == FIELDS
        assert got == [Local(1), Local(2)]


def test_a_registered_pickle_function_is_used() -> None:
    @dataclass
    class Registered:
        a: int

    copyreg.pickle(Registered, lambda value: (Registered, (value.a + 1,)))
    try:
        assert travel([Registered(1)]) == (OBJECTS, [Registered(2)])
    finally:
        del copyreg.dispatch_table[Registered]
