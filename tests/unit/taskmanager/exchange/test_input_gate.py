"""The gate has the clock and the order of a naive implementation, and its cost does not grow with the senders."""

from __future__ import annotations

import sys
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.taskmanager.exchange.input_gate import InputGate
from penstock.taskmanager.exchange.rows import Buffer, decode_buffer, encode_buffer

CHANNELS = [(exchange, sender) for exchange in (3, 7) for sender in range(3)]


class NaiveGate:
    """A gate that checks every channel each time."""

    def __init__(self) -> None:
        self.marks = dict.fromkeys(CHANNELS, MIN_TIMESTAMP)
        self.idle = dict.fromkeys(CHANNELS, False)
        self.buffers: dict[tuple[int, int], deque[Buffer]] = {channel: deque() for channel in CHANNELS}
        self.clock = MIN_TIMESTAMP
        self.seen = [MIN_TIMESTAMP]

    @property
    def is_idle(self) -> bool:
        unended = [c for c in CHANNELS if self.marks[c] != MAX_TIMESTAMP]
        return bool(unended) and all(self.idle[c] for c in unended)

    def next(self) -> Buffer | None:
        ready = [channel for channel in CHANNELS if self.buffers[channel]]
        return self.buffers[min(ready, key=lambda c: (self.marks[c], c))].popleft() if ready else None

    def advance(self, buffer: Buffer) -> int | None:
        channel = (buffer.exchange, buffer.sender)
        self.marks[channel] = max(self.marks[channel], buffer.watermark)
        self.seen.append(self.marks[channel])
        self.idle[channel] = buffer.is_idle
        unended = [c for c in CHANNELS if self.marks[c] != MAX_TIMESTAMP]
        active = [self.marks[c] for c in unended if not self.idle[c]]
        known = [mark for mark in self.seen if mark != MAX_TIMESTAMP]
        clock = min(active) if active else max(known) if unended else MAX_TIMESTAMP
        if clock > self.clock:
            self.clock = clock
            return clock
        return None


watermarks = st.one_of(st.integers(0, 20), st.sampled_from([MIN_TIMESTAMP, MAX_TIMESTAMP]))
arrivals = st.lists(st.tuples(st.sampled_from(CHANNELS), watermarks, st.booleans()), max_size=40)


def buffer_of(channel: tuple[int, int], watermark: int, idle: bool) -> Buffer:
    return decode_buffer(encode_buffer(channel[0], channel[1], 0, watermark, idle, None))


@given(rounds=st.lists(arrivals, max_size=4))
def test_order_and_clock_equal_those_of_the_naive_gate(rounds: list[list[tuple[tuple[int, int], int, bool]]]) -> None:
    gate, naive = InputGate(CHANNELS), NaiveGate()
    for arrived in rounds:
        for channel, watermark, idle in arrived:
            found = buffer_of(channel, watermark, idle)
            gate.put(found)
            naive.buffers[channel].append(found)
        for given_first in gate.drain():
            assert given_first is naive.next()
            assert gate.advance(given_first) == naive.advance(given_first)
            assert gate.is_idle == naive.is_idle
        assert naive.next() is None


def test_an_ended_channel_does_not_move_the_clock_while_the_others_are_idle() -> None:
    gate = InputGate(CHANNELS[:2])
    history, live = CHANNELS[:2]
    gate.advance(buffer_of(live, 5, idle=True))
    assert gate.advance(buffer_of(history, 90, idle=False)) == 90
    assert gate.advance(buffer_of(history, MAX_TIMESTAMP, idle=False)) is None
    assert (gate.watermark, gate.is_idle) == (90, True)
    assert gate.advance(buffer_of(live, 95, idle=False)) == 95
    assert gate.advance(buffer_of(live, MAX_TIMESTAMP, idle=False)) == MAX_TIMESTAMP
    assert not gate.is_idle


def test_feedback_of_an_iteration_does_not_prevent_the_end_of_the_input() -> None:
    gate = InputGate(CHANNELS[:2], timeless=CHANNELS[1:2])
    gate.advance(buffer_of(CHANNELS[1], MIN_TIMESTAMP, idle=True))
    assert gate.advance(buffer_of(CHANNELS[0], MAX_TIMESTAMP, idle=False)) == MAX_TIMESTAMP


@given(arrived=arrivals)
def test_buffers_processed_in_order_of_arrival_move_the_clock_in_the_same_way(
    arrived: list[tuple[tuple[int, int], int, bool]],
) -> None:
    gate, naive = InputGate(CHANNELS), NaiveGate()
    for channel, watermark, idle in arrived:
        found = buffer_of(channel, watermark, idle)
        assert gate.advance(found) == naive.advance(found)
        assert gate.watermark == naive.clock


@given(arrived=arrivals, more=arrivals)
def test_buffers_may_arrive_while_others_are_drained(
    arrived: list[tuple[tuple[int, int], int, bool]], more: list[tuple[tuple[int, int], int, bool]]
) -> None:
    gate = InputGate(CHANNELS)
    waiting = [buffer_of(*one) for one in more]
    put = [buffer_of(*one) for one in arrived]
    for found in put:
        gate.put(found)
    taken = []
    for found in gate.drain():
        taken.append(found)
        gate.advance(found)
        if waiting:
            put.append(waiting.pop())
            gate.put(put[-1])
    for channel in CHANNELS:
        of_channel = [b for b in put if (b.exchange, b.sender) == channel]
        assert [b for b in taken if (b.exchange, b.sender) == channel] == of_channel


def lines_per_buffer(senders: int) -> float:
    """Return the mean number of lines that the gate runs per buffer while the clock advances evenly."""
    gate = InputGate([(0, sender) for sender in range(senders)])
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    buffers = [buffer_of((0, sender), mark, False) for mark in range(5) for sender in range(senders)]
    for found in buffers:
        gate.put(found)
    before = sys.gettrace()
    sys.settrace(count)  # type: ignore[arg-type]
    try:
        for found in gate.drain():
            gate.advance(found)
    finally:
        sys.settrace(before)
    return lines / len(buffers)


def test_a_buffer_costs_the_same_with_many_senders() -> None:
    assert lines_per_buffer(1024) < 1.5 * lines_per_buffer(16)
