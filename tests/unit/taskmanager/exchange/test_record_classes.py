"""Records of one class go as tuples of their fields where that is all they are; what arrives is the same as by pickle."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.taskmanager.exchange.records import FIELDS, OBJECTS, decode_records, encode_records
from tests.sameness import difference
from tests.strategies import PLAIN_VALUES


class Bid(msgspec.Struct):
    auction: Any
    price: Any = None


class Keyed(msgspec.Struct, kw_only=True):
    auction: Any


class Open(msgspec.Struct, dict=True):
    auction: Any


class Halved(msgspec.Struct):
    """Pickle makes Structs by a call, so this halves once more on its way, by either form."""

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
def test_fields_of_any_plain_value(cls: Any, rows: list[tuple[Any, Any]]) -> None:
    values = [cls(*row) for row in rows]
    form, got = travel(values)
    assert form == FIELDS
    assert difference(values, got) is None


@pytest.mark.parametrize("value", [Frozen(1), Checked(1), Halved(4.0)], ids=repr)
def test_made_as_pickle_makes_them(value: Any) -> None:
    form, got = travel([value, value])
    assert form == FIELDS
    assert got == [Halved(2.0)] * 2 if isinstance(value, Halved) else difference([value, value], got) is None


@pytest.mark.parametrize("value", [Keyed(auction=1), Restored(1), Bid(Bid(1)), Things(a=1), [Bid(1)]], ids=repr)
def test_what_is_more_than_plain_fields_is_left_to_pickle(value: Any) -> None:
    form, (got,) = travel([value])
    assert form == OBJECTS
    assert got == (Restored(("restored", 1)) if isinstance(value, Restored) else value)


def test_records_of_several_classes_are_left_to_pickle() -> None:
    values = [Bid(1), Plain(1), None]
    assert travel(values) == (OBJECTS, values)


def test_attributes_beside_the_fields_arrive() -> None:
    extended, changed = Plain(1), WithDefault()
    extended.more = [1]  # type: ignore[attr-defined]
    del changed.a
    changed.c = 3  # type: ignore[attr-defined]
    for value in (extended, changed):
        form, (got,) = travel([value])
        assert form == OBJECTS
        assert vars(got) == vars(value)
    assert travel([Open(1)])[0] == OBJECTS


def test_a_class_of_the_script_goes_once_per_buffer_and_comes_back_as_itself() -> None:
    class Local(msgspec.Struct):
        a: int

    for _ in range(2):
        form, got = travel([Local(1), Local(2)])
        assert form == FIELDS
        assert got == [Local(1), Local(2)]


def test_a_way_of_pickling_that_the_program_registered_counts() -> None:
    @dataclass
    class Registered:
        a: int

    copyreg.pickle(Registered, lambda value: (Registered, (value.a + 1,)))
    try:
        assert travel([Registered(1)]) == (OBJECTS, [Registered(2)])
    finally:
        del copyreg.dispatch_table[Registered]
