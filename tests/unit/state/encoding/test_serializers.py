"""Values are converted to bytes and back with their types, or are refused with a remedy."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from penstock.common.errors import StateTypeError
from penstock.common.time import Instant
from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.state.encoding.codec import TUPLES, split_column
from penstock.state.encoding.serializers import codec_for


@dataclass
class Acc:
    count: int = 0
    seen: list = field(default_factory=list)  # the test needs a bare list


class Pair(NamedTuple):
    a: int
    b: Any = None


class Point(msgspec.Struct):
    x: float
    tags: dict[str, Any] = {}


class Tagged(msgspec.Struct, tag=True, array_like=True):
    x: Any


class Reading(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    station: str = Field(alias="Station")
    at: dt.datetime
    parts: set[int]
    pair: tuple[int, str]


class Colour(Enum):
    RED = 1


class Movie(TypedDict):
    name: str
    cast: Any


READING = Reading(Station="KJFK", at=dt.datetime(2026, 1, 1), parts={1, 2}, pair=(1, "a"))
PLUS_TWO = dt.timezone(dt.timedelta(hours=2))

UNTYPED = [
    1, 2**80, -(2**64), "a", b"x", None, True, 1.5, float("inf"), (), (1, 2), (1, (2, [3])), [1, (2,)], [2**70], (2**70,),
    {"a": (1,)}, {(1, 2): 3, dt.date(2026, 1, 1): 4}, {2**70: {"x": 2**70}}, {1: 2, None: 3, b"": 4, 1.5: 5}, {1, (2,)},
    frozenset({"a"}), dt.datetime(2026, 1, 1, 1, 2, 3, 4), dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, tzinfo=PLUS_TWO), dt.date(9999, 12, 31), dt.time(1, 2, 3, 4), dt.time(1, tzinfo=PLUS_TWO),
    dt.timedelta(-5, 3, 7), Decimal("1.50"), Decimal("NaN"), uuid.UUID(int=5), bytearray(b"a"), deque([1, (2,)], 5),
    Counter("aab"), defaultdict(int, {"a": 1}), defaultdict(list, {(1, 2): [3]}), defaultdict(None, {"a": defaultdict(set)}),
    OrderedDict([("b", 1), ("a", (2,))]), Row(a=1, b=(2,)), Row.of_kind(RowKind.DELETE, 1), [[[]]], {"deep": [{"er": ({1},)}]},
]  # fmt: skip

TYPED = [
    (int, 5), (int, 2**70), (float, 1.5), (str, "x"), (bytes, b""), (bool, True), (Acc, Acc(1, [(1, 2)])),
    (Pair, Pair(1, (2, {3}))), (Point, Point(1.5, {"a": (1,)})), (Tagged, Tagged((1, 2))), (Reading, READING),
    (list[Reading], [READING]), (Colour, Colour.RED), (Movie, {"name": "x", "cast": ("y",)}), (Acc | None, None),
    (Acc | None, Acc(2)), (dict[str, Any], {"a": {1, 2}}), (tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2, 3)),
    (list[dt.datetime], [dt.datetime(2026, 1, 1)]), (dict[dt.date, int], {dt.date(2026, 1, 1): 1}),
    (set[tuple[int, int]], {(1, 2)}), (list, [(1,), {2}]), (tuple, (1, (2,))), (set, {(1,)}), (dict, {(1, 2): (3,)}),
    (uuid.UUID, uuid.UUID(int=7)), (Decimal, Decimal("1.10")), (Instant, Instant(1, 2)), (Row, Row(1, "a")),
    (deque, deque([1])), (tuple[Acc, Colour], (Acc(1), Colour.RED)), (Any, (1, 2)), (object, {1}),
    (Types.TUPLE([Types.STRING(), Types.DOUBLE()]), ("a", None)), (Types.LIST(Types.INT()), [1, None]),
    (Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.TUPLE([Types.INT()])]), Row(a="x", b=(1,))),
    (Types.MAP(Types.STRING(), Types.ROW([Types.INT()])), {"k": Row(f0=1)}), (Types.INSTANT(), Instant(5, 0)),
    (Types.PICKLED_BYTE_ARRAY(), (1, {2})), (Types.BIG_INT(), 2**90), (Types.SQL_DATE(), dt.date(2026, 1, 1)),
]  # fmt: skip


def round_trips(type_info: Any, value: Any) -> list[Any]:
    """Return the value after each form of storage: single, in a column, and split out of a column."""
    codec = codec_for(type_info, state="s", operator="op")
    code, column = codec.encode_column(codec.freeze([value, value]))
    return [
        codec.decode(codec.encode(value)),
        *codec.decode_column(code, column),
        *map(codec.decode, split_column(code, column)),
    ]


@pytest.mark.parametrize("value", UNTYPED, ids=repr)
def test_builtin_values_are_restored_with_their_types(value: Any) -> None:
    assert {repr(v) for v in round_trips(None, value)} == {repr(value)}


def test_a_default_factory_that_is_code_is_refused() -> None:
    with pytest.raises(StateTypeError, match="its default_factory is a function: use a builtin type"):
        codec_for(None, state="s").encode(defaultdict(lambda: 1))


def test_a_pandas_time_is_refused_with_the_type_to_store() -> None:
    class Timestamp(dt.datetime):
        def to_pydatetime(self) -> dt.datetime: ...  # type: ignore[empty-body]

    with pytest.raises(StateTypeError, match="to_pydatetime"):
        codec_for(None, state="s").encode(Timestamp(2026, 1, 1))


@pytest.mark.parametrize(("type_info", "value"), TYPED, ids=repr)
def test_typed_values_are_restored(type_info: Any, value: Any) -> None:
    assert {repr(v) for v in round_trips(type_info, value)} == {repr(value)}


def test_numpy_values_become_the_declared_type_and_keep_theirs_without_one() -> None:
    assert {type(value) for value in round_trips(None, np.int32(5))} == {np.int32}
    assert round_trips(float, np.float32(1.5)) == [1.5] * 5
    assert round_trips(tuple[float, int], (np.float64(1.5), np.int8(2)))[0] == (1.5, 2)
    back = round_trips(None, np.array([[1, 2], [3, 4]], np.int16))[0]
    assert back.dtype == np.int16
    assert back.tolist() == [[1, 2], [3, 4]]
    back[0, 0] = 7  # the value has a separate array, not a view of the file


def test_an_int_in_a_float_state_becomes_a_float() -> None:
    assert [repr(v) for v in round_trips(float, 3)] == ["3.0"] * 5


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates()
    | st.datetimes() | st.timedeltas() | st.decimals(allow_nan=False) | st.uuids(),
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.integers()), inner, max_size=3)
    | st.sets(st.integers() | st.tuples(st.text()), max_size=1),
    max_leaves=10,
)  # fmt: skip


@given(st.lists(values, max_size=6))
def test_columns_of_any_values_are_restored(column: list[Any]) -> None:
    codec = codec_for(None, state="s")
    code, data = codec.encode_column(codec.freeze(column))
    assert repr(codec.decode_column(code, data)) == repr(column)
    assert repr([codec.decode(one) for one in split_column(code, data)]) == repr(column)


def test_tuples_of_scalars_are_encoded_later() -> None:
    codec = codec_for(None, state="s")
    column = [("a", 1), ("b", None)]
    frozen = codec.freeze(column)
    assert frozen is column, "immutable values are not encoded while processing is blocked"
    assert codec.encode_column(frozen)[0] == TUPLES


@dataclass(frozen=True)
class Frozen:
    a: int
    b: tuple[str, ...] = ()


@dataclass(frozen=True)
class HalfFrozen:
    a: list[int]


@pytest.mark.parametrize(
    ("type_info", "value", "at_once"),
    [
        (int, 1, False), (str, "a", False), (tuple[int, str], (1, "a"), False), (Frozen, Frozen(1, ("x",)), False),
        (Colour, Colour.RED, False), (HalfFrozen, HalfFrozen([1]), True), (list[int], [1], True), (Acc, Acc(1), True),
        (None, (1, [2]), True), (None, (1, "a"), False), (Types.ROW([Types.INT()]), Row(f0=1), True),
    ],
    ids=repr,
)  # fmt: skip
def test_only_mutable_values_are_encoded_while_processing_is_blocked(type_info: Any, value: Any, at_once: bool) -> None:
    codec = codec_for(type_info, state="s")
    frozen = codec.freeze([value])
    assert (type(frozen[0]) is msgspec.Raw) == at_once
    assert codec.decode_column(*codec.encode_column(frozen)) == [value]


@pytest.mark.parametrize(("type_info", "value"), [(None, [1]), (Acc, Acc(1)), (list[int], [1]), (dict, {})], ids=repr)
def test_changes_after_the_freeze_are_not_visible(type_info: Any, value: Any) -> None:
    codec = codec_for(type_info, state="s")
    before = repr(value)
    frozen = codec.freeze([value])
    if isinstance(value, Acc):
        value.count = 99
    elif isinstance(value, list):
        value.append(99)
    else:
        value["new"] = 1
    assert repr(codec.decode_column(*codec.encode_column(frozen))) == f"[{before}]"


class Plain:
    pass


@pytest.mark.parametrize(
    ("type_info", "value", "says"),
    [
        (None, Acc(), "Acc is not a builtin type"),
        (None, [Pair(1)], r"Pair \(inside a list\)"),
        (None, Colour.RED, "Colour"),
        (None, object(), "object"),
        (None, np.array([object()]), "dtype"),
        (None, "\ud800", "surrogate"),
        (None, ["\ud800"], "surrogate"),
        (int, "a", "declared as int and the value is a str"),
        (int, True, "bool"),
        (int, None, "NoneType"),
        (Acc, Acc(1.5), r"Expected `int`, got `float` - at `\$.count`"),  # type: ignore[arg-type]
        (Acc, {"count": 1}, "the value is a dict"),
        (list[int], [2**70], "beyond 64 bits"),
        (tuple[int, str], (1, 2), "Expected `str`"),
        (dict[str, int], {1: 2}, "Expected `str`"),
        (list[Acc], [object()], "object has no encoding"),
        (Point, Point("x"), "Expected `float`"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_would_change_is_refused_by_name(type_info: Any, value: Any, says: str) -> None:
    codec = codec_for(type_info, state="totals", operator="sum")
    with pytest.raises(StateTypeError, match=says) as alone:
        codec.encode(value)
    with pytest.raises(StateTypeError, match=says):
        codec.encode_column(codec.freeze([value]))
    assert "'totals'" in alone.value.message
    assert alone.value.operator == "sum"
    assert alone.value.remedy


def test_the_error_shows_the_one_bad_value_of_a_column() -> None:
    codec = codec_for(tuple[int, str], state="s")
    with pytest.raises(StateTypeError, match=r"\(7, 8\)"):
        codec.encode_column(codec.freeze([(1, "a"), (7, 8), (2, "b")]))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(StateTypeError, match="contains itself"):
        codec_for(None, state="s").encode(loop)


@pytest.mark.parametrize("type_info", [Plain, list[Plain], Acc | Pair | Point, Point | Acc], ids=repr)
def test_a_type_that_has_no_encoding_is_refused_when_it_is_declared(type_info: Any) -> None:
    with pytest.raises(StateTypeError, match="'totals'") as caught:
        codec_for(type_info, state="totals", operator="sum")
    assert caught.value.remedy
    assert caught.value.operator == "sum"
