"""Segments: rows are read as they were written, by key group, and damage is detected."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import StateFormatUnsupported
from penstock.state.encoding.codec import EncodedCodec
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.encoding.serializers import codec_for
from penstock.state.key_groups import KeyGroupRange, key_group
from penstock.state.snapshot_format import segment
from penstock.state.snapshot_format.rows import DROP, PUT, Rows
from penstock.state.snapshot_format.segment import SegmentWriter, StateInfo, read_segment

ALL = KeyGroupRange(0, 15)
INFO = StateInfo("value", "value", {"type": "any"})
LIST_INFO = StateInfo("list", "list", {"type": "any"})
CODEC = codec_for(None, state="x")


def write(rows: Rows, info: StateInfo = INFO, owned: KeyGroupRange = ALL) -> bytes:
    writer = SegmentWriter(16, owned)
    writer.add("x", info, rows, CODEC, UNTYPED_KEYS, UNTYPED_KEYS)
    return writer.finish()


def read(content: bytes, within: KeyGroupRange = ALL, codec: Any = CODEC) -> list[Rows]:
    return [
        block.rows(within, 16, codec, UNTYPED_KEYS, UNTYPED_KEYS) for block in read_segment(content, within, "file")
    ]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "BLOCK_ELEMENTS", 7)


keys = st.lists(
    st.text(max_size=4) | st.integers() | st.tuples(st.integers(), st.text(max_size=2)), max_size=60, unique=True
)


@given(keys, st.integers(0, 15), st.integers(0, 15))
def test_a_range_of_key_groups_returns_exactly_its_rows(some: list[Any], a: int, b: int) -> None:
    within = KeyGroupRange(min(a, b), max(a, b))
    rows = Rows(
        PUT, list(some), [(i % 3, 5) if i % 2 else None for i in range(len(some))], values=[{k: 1} for k in some]
    )
    found = read(write(rows), within)
    expected = {k for k in some if key_group(k, 16) in within}
    assert [k for part in found for k in part.keys if k in expected] == [k for part in found for k in part.keys]
    assert sorted((k for part in found for k in part.keys), key=repr) == sorted(expected, key=repr)
    for part in found:
        assert part.values == [{k: 1} for k in part.keys]
        assert part.namespaces is not None
        where = dict(zip(some, rows.namespaces or [], strict=True))
        assert part.namespaces == [where[k] for k in part.keys]


@given(st.dictionaries(st.integers(), st.lists(st.text(max_size=3), max_size=20), max_size=20))
def test_lists_are_not_split(lists: dict[int, list[str]]) -> None:
    values = [item for items in lists.values() for item in items]
    rows = Rows(PUT, list(lists), counts=[len(items) for items in lists.values()], values=values)
    found: dict[int, list[str]] = {}
    for part in read(write(rows, LIST_INFO), KeyGroupRange(3, 11)):
        offset = 0
        for key, count in zip(part.keys, part.counts or [], strict=True):
            found[key] = (part.values or [])[offset : offset + count]
            offset += count
    assert found == {key: items for key, items in lists.items() if 3 <= key_group(key, 16) <= 11}


def test_a_reader_of_few_key_groups_reads_few_blocks() -> None:
    content = write(Rows(PUT, list(range(1000)), values=list(range(1000))))
    blocks = list(read_segment(content, ALL, "file"))
    assert len(blocks) > 50
    few = list(read_segment(content, KeyGroupRange(5, 5), "file"))
    assert len(few) < len(blocks) / 8
    assert sum(block.block.rows for block in few) < 1000 / 8


def test_values_can_be_copied_in_encoded_form() -> None:
    values = [(1, "a"), (2, None), (3, "c")]
    content = write(Rows(PUT, ["a", "b", "c"], values=values))
    encoded = [value for part in read(content, codec=EncodedCodec("x")) for value in part.values or []]
    assert sorted(CODEC.decode(value) for value in encoded) == values


def test_copied_blocks_contain_only_key_groups_of_their_reader() -> None:
    content = write(Rows(PUT, list(range(200)), values=list(range(200))))
    for owned in (KeyGroupRange(0, 6), KeyGroupRange(7, 15), KeyGroupRange(4, 4)):
        writer = SegmentWriter(16, owned)
        for block in read_segment(content, owned, "file"):
            writer.carry(block, owned)
        again = writer.finish()
        expected = [k for k in range(200) if key_group(k, 16) in owned]
        assert sorted(k for part in read(again) for k in part.keys) == expected
        assert sorted(k for part in read(again, KeyGroupRange(4, 5)) for k in part.keys) == [
            k for k in expected if key_group(k, 16) in KeyGroupRange(4, 5)
        ]


def test_dropped_namespaces_apply_to_the_key_groups_of_the_writer() -> None:
    content = write(Rows(DROP, [], [(0, 5), None]), owned=KeyGroupRange(4, 9))
    (block,) = read_segment(content, ALL, "file")
    assert block.clip(ALL) == KeyGroupRange(4, 9)
    assert read(content)[0].namespaces == [(0, 5), None]
    assert read(content, KeyGroupRange(10, 15)) == []


def test_an_empty_segment_has_no_blocks() -> None:
    assert read(write(Rows(PUT, [], values=[]))) == []


@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: c[:10], lambda c: b"", lambda c: b"X" + c[1:]])
def test_an_invalid_segment_is_refused_by_name(damage: Any) -> None:
    content = write(Rows(PUT, [1], values=[1]))
    with pytest.raises(StateFormatUnsupported, match="state file 7"):
        list(read_segment(damage(content), ALL, "state file 7"))


def test_a_newer_format_is_refused_with_a_remedy() -> None:
    content = bytearray(write(Rows(PUT, [1], values=[1])))
    struct.pack_into("<H", content, 4, 2)
    with pytest.raises(StateFormatUnsupported, match="format 2") as caught:
        list(read_segment(bytes(content), ALL, "state file 7"))
    assert caught.value.remedy
