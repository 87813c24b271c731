"""Keys as bytes: equal keys have equal bytes, and keys are restored from their bytes."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from penstock.common.errors import StateTypeError
from penstock.state.encoding.key_hash import stable_hash
from penstock.state.encoding.keys import KeyCodec


class Place(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Station:
    country: str
    place: Place
    active: bool = True


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Colour(Enum):
    RED = "red"


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates()
    | st.datetimes() | st.datetimes(timezones=st.just(dt.timezone(dt.timedelta(hours=5)))) | st.times() | st.timedeltas()
    | st.decimals(allow_nan=False) | st.uuids()
)  # fmt: skip
keys = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=6
)
untyped = KeyCodec(None, "keys")


@given(keys)
def test_a_restored_key_is_equal(key: Any) -> None:
    back = untyped.decode(untyped.encode(key))
    assert back == key
    assert hash(back) == hash(key)
    assert stable_hash(back) == stable_hash(key)


@given(keys, keys)
def test_bytes_are_equal_if_and_only_if_keys_are(a: Any, b: Any) -> None:
    assert (untyped.encode(a) == untyped.encode(b)) == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True), (1, 1.0), (Decimal("0.10"), Decimal("0.1")), (Decimal("1E-40"), Decimal("1.000E-40")), (1, Decimal("1.00")), (0, -0.0), (2**70, float(2**70)), ((1, (2.0,)), (True, (2,))),
        (np.int8(5), 5), (np.str_("a"), "a"), (frozenset({1, 2}), frozenset({2.0, True})),
        (dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 17, tzinfo=dt.timezone(dt.timedelta(hours=5)))),
    ],
)  # fmt: skip
def test_equal_keys_have_equal_bytes(a: Any, b: Any) -> None:
    assert untyped.encode(a) == untyped.encode(b)


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        (Place, Place(1, 2)), (Station, Station("de", Place(1, 2), active=False)), (Colour, Colour.RED), (Model, Model(a=1)),
        (tuple[str, Place], ("a", Place(1, 2))), (tuple[Station, int], (Station("de", Place(3, 4)), 1)), (float, 2.0),
        (bool, True), (Decimal, Decimal("2")), (dt.date, dt.date(2026, 1, 1)), (uuid.UUID, uuid.UUID(int=1)),
        (int | str, "a"), (Station | None, None),
    ],
    ids=repr,
)  # fmt: skip
def test_a_key_of_a_declared_type_is_restored_with_that_type(key_type: Any, key: Any) -> None:
    codec = KeyCodec(key_type, "keys")
    back = codec.decode(codec.encode(key))
    assert repr(back) == repr(key)
    assert back == key


@pytest.mark.parametrize(
    "key", [Place(1, 2), Station("de", Place(1, 2)), Colour.RED, (1, Place(1, 2)), Model(a=1)], ids=repr
)
def test_structured_keys_without_a_declared_type_are_refused(key: Any) -> None:
    with pytest.raises(StateTypeError, match="one of the keys is a") as caught:
        KeyCodec(None, "keys", operator="sum").encode(key)
    assert "key_type" in caught.value.remedy
    assert caught.value.operator == "sum"


@pytest.mark.parametrize("key", [[1], {1}, object(), "\ud800", dt.time(1, tzinfo=dt.UTC)])
def test_an_invalid_key_is_refused(key: Any) -> None:
    with pytest.raises(StateTypeError):
        untyped.encode(key)
