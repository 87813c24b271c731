"""Key groups: formulas, stability, and equal results of the scalar and the columnar hash."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from penstock.common.errors import InvalidJob, StateTypeError
from penstock.common.types import Row
from penstock.state.encoding.key_hash import stable_hash
from penstock.state.key_groups import (
    KeyGroupCache,
    column_key_groups,
    key_group,
    key_group_range,
    keys_key_groups,
    subtask_for_key_group,
)


class Point(NamedTuple):
    x: int
    y: int


class Level(IntEnum):
    LOW = 1


class Colour(Enum):
    RED = "red"


class Word(str, Enum):  # noqa: UP042 - the test needs the mixin
    YES = "yes"


@dataclass(frozen=True)
class Station:
    country: str
    number: float


class Struct(msgspec.Struct, frozen=True):
    a: int


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


@given(st.integers(1, 512), st.data())
def test_ranges_cover_all_groups_once_and_match_the_owner(max_parallelism: int, data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert [group for r in ranges for group in range(r.start, r.end + 1)] == list(range(max_parallelism))
    sizes = {r.end - r.start + 1 for r in ranges}
    assert max(sizes) - min(sizes) <= 1
    for subtask, owned in enumerate(ranges):
        assert {subtask_for_key_group(g, parallelism, max_parallelism) for g in range(owned.start, owned.end + 1)} == {
            subtask
        }


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 0), (1, 40_000)])
def test_impossible_parallelism_is_refused(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(InvalidJob):
        key_group_range(0, parallelism, max_parallelism)


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Decimal(1), Decimal("1.0"), Level.LOW],
        [1, np.int8(1), np.float32(1), np.float64(1), np.bool_(True)],
        [0, -0.0, False, Decimal("-0")],
        [0.5, Decimal("0.50"), np.float64(0.5)],
        [2**70, float(2**70), Decimal(2**70)],
        [-(2**63), -(2.0**63)],
        [float("inf"), Decimal("Infinity")],
        ["yes", Word.YES, np.str_("yes")],
        [b"x", np.bytes_(b"x")],
        [(1, ("a", 2.0)), (True, ("a", 2)), (Decimal(1), (np.str_("a"), 2))],
        [(1, 2), Point(1, 2), Point(True, 2)],
        [frozenset({1, "a", 2.5}), frozenset({"a", Decimal("2.5"), True})],
        [
            dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        ],
        [dt.timedelta(days=1), dt.timedelta(hours=24)],
        [Station("de", 1), Station("de", True)],
        [Row(1, "a"), Row(1.0, "a")],
        [None, None],
    ],
)
def test_equal_keys_share_a_group(equal: list[Any]) -> None:
    assert all(a == b for a in equal for b in equal), "the test's own keys must be equal"
    assert len({stable_hash(key) for key in equal}) == 1


def test_every_kind_of_key_has_a_hash_and_most_differ() -> None:
    keys = [
        "a", b"a", 1, 1.5, None, (), ("a",), ("a", "b"), frozenset({"a"}), Decimal("0.1"), uuid.UUID(int=1),
        dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.time(1),
        dt.time(1, tzinfo=dt.UTC), dt.timedelta(1), Colour.RED, Station("de", 7), Struct(5), Model(a=6), Row("z"),
    ]  # fmt: skip
    assert len({stable_hash(key) for key in keys}) == len(keys)


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, (1, [2]), bytearray(b"a"), np.array([1])], ids=repr)
def test_a_mutable_key_is_refused_by_type_with_a_remedy(key: Any) -> None:
    with pytest.raises(StateTypeError, match="cannot be a key, because it is mutable") as caught:
        key_group(key, 128)
    wanted = "bytes" if isinstance(key, bytearray) else "one of its fields" if isinstance(key, dict) else "tuple"
    assert wanted in caught.value.remedy


@pytest.mark.parametrize("key", [object(), Fraction(1, 3), 1 + 2j, np.datetime64("2026-01-01"), "\ud800"])
def test_a_key_without_canonical_form_is_refused(key: Any) -> None:
    with pytest.raises(StateTypeError) as caught:
        key_group(key, 128)
    assert caught.value.remedy


@dataclass(eq=False)
class Identity:
    a: int


def test_a_key_compared_by_identity_is_refused() -> None:
    with pytest.raises(StateTypeError, match="Identity"):
        key_group(Identity(1), 128)


def test_hashes_do_not_depend_on_the_process() -> None:
    code = "from penstock.state.encoding.key_hash import stable_hash as h; print(h('käse'), h(('a', 1, None)), h(frozenset('abc')))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


def test_hashes_are_pinned_because_files_depend_on_them() -> None:
    assert [stable_hash(key) for key in ("sensor_1", 42, 1.5, ("a", 1), None, b"x", dt.date(2026, 1, 1))] == PINNED


PINNED = [3830651709, 789907451, 2364027229, 556284144, 2462723854, 1352825371, 694990743]


def test_sequential_keys_spread_evenly() -> None:
    for keys in (
        [f"sensor_{i}" for i in range(12_800)],
        list(range(12_800)),
        [(i % 7, f"k{i}") for i in range(12_800)],
    ):
        counts = Counter(keys_key_groups(keys, 128).tolist())
        assert len(counts) == 128
        assert max(counts.values()) < 160, "a group has far more than its share of 100"


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.decimals(allow_nan=False),
    st.dates(), st.datetimes(), st.times(), st.timedeltas(), st.uuids(),
)  # fmt: skip
keys_strategy = st.recursive(scalars, lambda s: st.lists(s, max_size=4).map(tuple), max_leaves=6)


@given(st.lists(keys_strategy, max_size=40), st.integers(1, 1000))
def test_sequences_have_the_hashes_of_their_keys(keys: list[Any], max_parallelism: int) -> None:
    assert keys_key_groups(keys, max_parallelism).tolist() == [key_group(key, max_parallelism) for key in keys]


@pytest.mark.parametrize(
    "strategy",
    [
        st.text(max_size=120), st.integers(), st.integers(-(2**63), 2**63 - 1),
        st.tuples(st.text(), st.integers(-5, 5)), st.tuples(), st.tuples(st.integers(), st.tuples(st.text(), st.text())),
    ],
)  # fmt: skip
@given(data=st.data())
def test_sequences_of_one_type_have_the_hashes_of_their_keys(
    strategy: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    keys = data.draw(st.lists(strategy, min_size=17, max_size=50))
    assert keys_key_groups(keys, 128).tolist() == [key_group(key, 128) for key in keys]


ARROW = {
    pa.string(): st.text(max_size=120),
    pa.large_string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=120),
    pa.large_binary(): st.binary(max_size=20),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.decimal128(20, 4): st.decimals(-(10**10), 10**10, places=4),
    pa.dictionary(pa.int32(), pa.string()): st.text(max_size=3),
}


@pytest.mark.parametrize("kind", ARROW, ids=str)
@given(data=st.data())
def test_columns_have_the_hashes_of_their_cells(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | ARROW[kind], max_size=30))
    column = pa.array(values, kind)
    assert column_key_groups(column, 128).tolist() == [key_group(key, 128) for key in column.to_pylist()]
    assert column_key_groups(column[1:], 128).tolist() == [key_group(key, 128) for key in column.to_pylist()[1:]]


def test_nan_is_refused_in_columns_and_as_a_single_value() -> None:
    nan = float("nan")
    for refused in (
        lambda: key_group(nan, 128),
        lambda: key_group(("a", nan), 128),
        lambda: keys_key_groups([1.5, nan], 128),
        lambda: column_key_groups(pa.array([1.5, None, nan]), 128),
        lambda: column_key_groups(pa.array([nan], pa.float32()), 128),
    ):
        with pytest.raises(StateTypeError, match="nan cannot be a key"):
            refused()


def test_a_chunked_column_has_the_hashes_of_its_cells() -> None:
    column = pa.chunked_array([["a", "b"], ["c"]])
    assert column_key_groups(column, 128).tolist() == [key_group(key, 128) for key in "abc"]
    assert column_key_groups(pa.chunked_array([], pa.string()), 128).tolist() == []


def test_the_cache_computes_once_and_has_a_limited_size() -> None:
    groups = KeyGroupCache(128, limit=10)
    for i in range(100):
        assert groups[f"k{i}"] == key_group(f"k{i}", 128)
        assert len(groups) <= 10
    assert "k99" in groups
