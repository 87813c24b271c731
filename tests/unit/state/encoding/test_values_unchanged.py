"""Values do not change in state: they are restored equal and of the same type at every depth, or refused with state and
type."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.inspect import type_info

from penstock.common.errors import StateTypeError
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.encoding.serializers import codec_for
from penstock.state.encoding.tagged import Unencodable
from penstock.state.encoding.typed_tags import compile_tagger
from penstock.state.operator_state import OperatorStateStore
from tests.strategies import (
    DATETIMES,
    HASHABLE,
    LEAVES,
    PLAIN_VALUES,
    VALUES,
    Color,
    Frozen,
    Items,
    Length,
    Level,
    Mapping,
    Model,
    Moment,
    Number,
    Octets,
    Open,
    Pair,
    Plain,
    Reading,
    Real,
    Sealed,
    Slotted,
    Struct,
    Text,
    Unit,
)
from tests.unit.state.support import KINDS, Backends, at, plain
from tests.value_difference import difference


def stored(declared: Any, value: Any) -> list[Any]:
    """Return the value after both ways through its codec: single, and in a column.

    Raises:
        StateTypeError: both ways refuse the value.
    """
    codec = codec_for(declared, state="seen", operator="count")
    try:
        code, data = codec.encode_column(codec.freeze([value, value]))
    except StateTypeError:
        with pytest.raises(StateTypeError):
            codec.encode(value)
        raise
    return [codec.decode(codec.encode(value)), *codec.decode_column(code, data)]


def assert_named(refusal: StateTypeError, state: str, operator: str) -> None:
    assert state in refusal.message
    assert refusal.operator == operator
    assert refusal.remedy


def unchanged_or_refused(declared: Any, value: Any) -> None:
    try:
        back = stored(declared, value)
    except StateTypeError as refusal:
        assert_named(refusal, "'seen'", "count")
    else:
        for got in back:
            assert difference(value, got) is None


@given(VALUES)
def test_values_without_a_declared_type_are_unchanged_or_refused(value: Any) -> None:
    unchanged_or_refused(None, value)


@given(PLAIN_VALUES)
def test_builtin_values_are_never_refused(value: Any) -> None:
    for got in stored(None, value):
        assert difference(value, got) is None


RECORDS = (
    st.builds(Frozen, LEAVES) | st.builds(Reading, st.text(), LEAVES) | st.builds(Model, name=st.text(), content=LEAVES)
)
HOLDERS: dict[str, tuple[Any, Any]] = {
    "list": (list[Any], lambda v: [v, v]),
    "dict": (dict[str, Any], lambda v: {"k": v}),
    "tuple": (tuple[str, Any], lambda v: ("k", v)),
    "tuple of many": (tuple[Any, ...], lambda v: (v, v)),
    "optional": (Plain | None, lambda v: Plain(v)),
    "dataclass": (Plain, lambda v: Plain(v, [v])),
    "frozen dataclass": (Frozen, Frozen),
    "slots": (Slotted, lambda v: Slotted(v, 1)),
    "frozen slots": (Sealed, Sealed),
    "named tuple": (Reading, lambda v: Reading("s", v)),
    "model": (Model, lambda v: Model(name="m", content=v)),
    "struct": (Struct, lambda v: Struct("s", v)),
    "list of dataclasses": (list[Plain], lambda v: [Plain(v)]),
    "dict of tuples": (dict[str, tuple[int, Any]], lambda v: {"k": (1, v)}),
}


@given(st.lists(LEAVES | RECORDS, max_size=2).map(tuple) | LEAVES | RECORDS)
def test_values_at_an_any_of_a_declared_type_are_unchanged_or_refused(value: Any) -> None:
    for declared, holding in HOLDERS.values():
        unchanged_or_refused(declared, holding(value))


KEYED: dict[str, tuple[Any, Any]] = {
    "any": (dict[Any, int], lambda k: {k: 1}),
    "bare": (dict, lambda k: {k: [k]}),
    "tuple": (dict[tuple[int, Any], str], lambda k: {(1, k): "v"}),
    "named tuple": (dict[Reading, int], lambda k: {Reading("s", k): 1}),
    "frozen dataclass": (dict[Frozen, int], lambda k: {Frozen(k): 1}),
    "in a list": (list[dict[Any, Any]], lambda k: [{k: k}]),
}


@given(HASHABLE)
def test_keys_at_an_any_of_a_declared_dict_are_unchanged_or_refused(key: Any) -> None:
    for declared, holding in KEYED.values():
        unchanged_or_refused(declared, holding(key))


@pytest.mark.parametrize("declared", [dict[datetime, int], dict[datetime | None, int], dict[tuple[datetime, int], int]])
def test_a_declared_key_keeps_its_offset(declared: Any) -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    value = {(moment, 1) if "tuple" in str(declared) else moment: 1}
    assert [repr(got) for got in stored(declared, value)] == [repr(value)] * 3


@given(DATETIMES)
def test_a_declared_datetime_keeps_its_offset(value: datetime) -> None:
    try:
        back = stored(datetime, value)
    except StateTypeError as refusal:
        assert_named(refusal, "ZoneInfo", "count")
    else:
        assert [(got, got.isoformat()) for got in back] == [(value, value.isoformat())] * 3


WRONG = {
    "an int that no float equals": (float, 2**53 + 1),
    "an int beyond all floats": (float, 10**400),
    "text of a subclass": (str, Text("t")),
    "an int of a subclass": (int, Number(1)),
    "a float of a subclass": (float, Real(1.5)),
    "bytes of a subclass": (bytes, Octets(b"x")),
    "a bool as int": (int, True),
    "a numpy bool as int": (int, np.bool_(True)),
    "an enum as int": (int, Level.LOW),
    "an enum as text": (str, Unit.CELSIUS),
    "a list of a subclass": (list[int], Items([1])),
    "a dict of a subclass": (dict[str, int], Mapping(k=1)),
    "a tuple of a subclass": (tuple[int, int], Pair((1, 2))),
    "a named tuple with attributes": (None, Open(1, 2)),
    "a datetime of a subclass": (datetime, Moment(2026, 1, 1)),
    "a timedelta of a subclass": (timedelta, Length(1)),
    "an enum": (None, Color.RED),
    "a buffer": (None, memoryview(b"x")),
}


@pytest.mark.parametrize(("declared", "value"), WRONG.values(), ids=WRONG)
def test_a_value_that_would_change_is_refused(declared: Any, value: Any) -> None:
    with pytest.raises(StateTypeError, match="'seen'"):
        stored(declared, value)


class Winter(tzinfo):
    """A time zone like those of other libraries."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, moment: datetime | None) -> timedelta:
        return timedelta()


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=Winter()), time(1, tzinfo=Winter())],  # type: ignore[abstract]
    ids=["datetime", "time"],
)
def test_zones_of_other_libraries_are_refused(value: Any) -> None:
    with pytest.raises(StateTypeError, match="Winter") as caught:
        stored(None, value)
    assert "ZoneInfo" in caught.value.message


@pytest.mark.parametrize(
    "value", [5, datetime(2026, 1, 1, tzinfo=UTC), time(1, tzinfo=timezone(timedelta(hours=1)))], ids=repr
)
def test_fixed_offsets_are_restored(value: Any) -> None:
    unchanged_or_refused(None, value)


class Last:
    """An aggregate function whose accumulator is the value that was last added."""

    def create_accumulator(self) -> Any:
        return ()

    def add(self, value: Any, accumulator: Any) -> Any:
        return (value,)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return b


DESCRIPTORS = [
    ValueStateDescriptor("value"),
    ListStateDescriptor("list"),
    MapStateDescriptor("map"),
    ReducingStateDescriptor("reducing", lambda a, b: b),
    AggregatingStateDescriptor("aggregating", Last()),
]
EXPECTED: list[Any] = [lambda v: v, lambda v: [v, v], lambda v: {"k": v}, lambda v: v, lambda v: (v,)]


def fill(backend: Any, value: Any) -> None:
    """Write the value twice, if the state has more than one way to write."""
    single, several, entries, reducing, aggregating = (backend.get_state(descriptor) for descriptor in DESCRIPTORS)
    single.update(value)
    several.add(value)
    several.add_all([value])
    entries.put("k", value)
    for folding in (reducing, aggregating):
        folding.add(value)


@pytest.mark.parametrize("restored_by", KINDS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=VALUES)
def test_every_kind_of_state_is_unchanged_before_and_after_a_restore(
    backends: Backends, restored_by: str, value: Any
) -> None:
    assume(value is not None)
    backend = backends.create()
    at(backend, "key")
    try:
        fill(backend, value)
        handle = backends.snapshot(backend)
    except StateTypeError as refusal:
        assert_named(refusal, "cannot be stored", "the operator")
        return
    for which in (backend, *backends.restored([handle], kind=restored_by)):
        at(which, "key")
        for descriptor, expected in zip(DESCRIPTORS, EXPECTED, strict=True):
            assert difference(expected(value), plain(which.get_state(descriptor))) is None


@given(value=VALUES)
def test_operator_state_and_broadcast_state_are_unchanged(value: Any) -> None:
    def states(store: OperatorStateStore) -> list[Any]:
        described = MapStateDescriptor("rules")
        return [store.get_list_state("own"), store.get_union_list_state("all"), store.get_broadcast_state(described)]

    store, restored = OperatorStateStore("count"), OperatorStateStore("count")
    own, everybodys, rules = states(store)
    own.append(value)
    everybodys.append(value)
    rules.put("rule", value)
    try:
        snapshot = store.snapshot()
    except StateTypeError as refusal:
        assert_named(refusal, "'own'", "count")
        return
    restored.restore([snapshot], 0, 1)
    own, everybodys, rules = states(restored)
    for got in (own[0], everybodys[0], rules.get("rule")):
        assert difference(value, got) is None


def test_a_declared_datetime_with_an_odd_offset_is_refused_when_it_is_written() -> None:
    """A restore could not parse the text of the offset, so the checkpoint would be lost."""
    odd = timezone(timedelta(hours=5, minutes=53, seconds=28))
    tagger = compile_tagger(type_info(datetime))
    assert tagger is not None
    with pytest.raises(Unencodable, match="whole minutes"):
        tagger(datetime(2026, 1, 1, tzinfo=odd))
