"""Keys as numbers, and their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.encoding.key_index import KeyIndex
from penstock.state.encoding.packed_keys import LONGEST, PackedKeys

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=LONGEST // 4)
longs = st.integers(-(2**63), 2**63 - 1)
keys_of_a_kind = st.lists(texts, max_size=30) | st.lists(longs, max_size=30)


def packed(keys: list[Any]) -> PackedKeys:
    found = PackedKeys.of_list(keys)
    assert found is not None
    return found


@given(keys=keys_of_a_kind.filter(bool), start=st.integers(0, 5), large=st.booleans())
def test_packed_keys_are_restored(keys: list[Any], start: int, large: bool) -> None:
    assert packed(keys).to_list() == keys
    kind = (pa.large_string() if large else pa.string()) if isinstance(keys[0], str) else pa.int64()
    column = pa.array([*keys[:1] * start, *keys, *keys[:1]], kind)[start:-1]
    found = PackedKeys.of_column(column)
    assert found is not None
    assert list(found) == keys
    assert found[1:].to_list() == keys[1:]
    assert found[0] == keys[0]


@pytest.mark.parametrize(
    "keys", [["a\0"], ["a", None], [1, True], [1, "a"], [2**63], [1.0], ["x" * (LONGEST + 1)], ["\ud800"], [b"a"], []]
)
def test_other_keys_are_not_packed(keys: list[Any]) -> None:
    assert PackedKeys.of_list(keys) is None


@pytest.mark.parametrize(
    "column",
    [pa.array([1], pa.uint64()), pa.array([1.0]), pa.array([True]), pa.array(["a", None]), pa.array([b"a"])],
    ids=lambda column: str(column.type),
)
def test_other_columns_are_not_packed(column: pa.Array) -> None:
    assert PackedKeys.of_column(column) is None


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_an_index_finds_the_same_keys_as_a_dictionary(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([texts, longs]))
    index, rows = KeyIndex(), dict[Any, int]()
    for _ in range(4):
        keys = data.draw(st.lists(kind, min_size=1, max_size=40))
        packed_keys = packed(keys)
        assert index.find(packed_keys).tolist() == [rows.get(key, -1) for key in keys]
        new = [key for key in dict.fromkeys(keys) if key not in rows]
        if new:
            rows.update(zip(new, index.add(packed(new)).tolist(), strict=True))
        assert index.find(packed_keys).tolist() == [rows[key] for key in keys]
    assert index.keys().to_list() == list(rows)


@pytest.mark.parametrize("of", [lambda n: f"sensor {n}", lambda n: n << 40, lambda n: -n])
def test_an_index_grows(of: Any) -> None:
    index, keys = KeyIndex(), [of(n) for n in range(20_000)]
    for start in range(0, len(keys), 3000):
        index.add(packed(keys[start : start + 3000]))
    assert np.array_equal(index.find(packed(keys[::-1])), np.arange(len(keys))[::-1])
    assert index.find(packed([of(20_000)])).tolist() == [-1]


def test_an_index_contains_keys_of_one_kind() -> None:
    index = KeyIndex()
    assert index.accepts(packed(["a"]))
    index.add(packed([1]))
    assert index.accepts(packed([2]))
    assert not index.accepts(packed(["a"]))


def test_removed_keys_do_not_change_when_others_arrive() -> None:
    index = KeyIndex()
    index.add(packed(["a", "b"]))
    before = index.keys()
    index.add(packed(["a much longer key", "c"]))
    assert before.to_list() == ["a", "b"]
    assert index.keys().to_list() == ["a", "b", "a much longer key", "c"]
