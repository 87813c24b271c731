"""A sealed frame opens only once, in order, in its direction, and on its connection."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.taskmanager.control.sealed_channel import NotAuthentic, Opener, Sealer, derive_keys

KEY = b"k" * 32


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in pairwise(edges)]


def opened(opener: Opener, data: bytes) -> list[bytes]:
    opener.feed(data)
    frames = []
    while (frame := opener.take()) is not None:
        frames.append(frame)
    return frames


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0, 2000), max_size=8))
def test_frames_arrive_whole_if_their_bytes_arrive_in_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    sent = b"".join(sealer.seal(body) for body in bodies)
    assert [frame for piece in pieces(sent, cuts) for frame in opened(opener, piece)] == bodies


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=3), st.data())
def test_a_changed_bit_is_detected(bodies: list[bytes], data: st.DataObject) -> None:
    sealer = Sealer(KEY)
    sent = bytearray(b"".join(sealer.seal(body) for body in bodies))
    bit = data.draw(st.integers(0, len(sent) * 8 - 1))
    sent[bit // 8] ^= 1 << bit % 8
    opener = Opener(KEY)
    got: list[bytes] = []
    opener.feed(bytes(sent))
    try:
        while (frame := opener.take()) is not None:
            got.append(frame)
    except NotAuthentic:
        pass
    assert got == bodies[: len(got)], "a changed frame was accepted"
    assert len(got) < len(bodies)


def test_a_frame_is_not_accepted_twice_or_out_of_order() -> None:
    sealer = Sealer(KEY)
    first, second = sealer.seal(b"one"), sealer.seal(b"two")
    again = Opener(KEY)
    assert opened(again, first) == [b"one"]
    with pytest.raises(NotAuthentic):
        opened(again, first)
    with pytest.raises(NotAuthentic):
        opened(Opener(KEY), second)


def test_every_connection_and_direction_has_a_separate_key() -> None:
    here, there = b"s" * 32, b"c" * 32
    keys = {*derive_keys("t", here, there), *derive_keys("t", there, here), *derive_keys("u", here, there)}
    assert len(keys) == 6
    assert derive_keys("t", here, there) == derive_keys("t", here, there)


def test_a_long_frame_is_refused_before_all_its_bytes_arrive() -> None:
    opener = Opener(KEY, limit=100)
    with pytest.raises(NotAuthentic, match="101 bytes"):
        opened(opener, (101).to_bytes(4, "big"))
    with pytest.raises(NotAuthentic, match="15 bytes"):
        opened(Opener(KEY), (15).to_bytes(4, "big"))
