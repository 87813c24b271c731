"""The gate's clock and order are those of the rule, looked at naively; its cost does not grow with the senders."""

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
    """Looks at every channel, every time."""

    def __init__(self) -> None:
        self.marks = dict.fromkeys(CHANNELS, MIN_TIMESTAMP)
        self.idle = dict.fromkeys(CHANNELS, False)
        self.buffers: dict[tuple[int, int], deque[Buffer]] = {channel: deque() for channel in CHANNELS}
        self.clock = MIN_TIMESTAMP

    def next(self) -> Buffer | None:
        ready = [channel for channel in CHANNELS if self.buffers[channel]]
        return self.buffers[min(ready, key=lambda c: (self.marks[c], c))].popleft() if ready else None

    def advance(self, buffer: Buffer) -> int | None:
        channel = (buffer.exchange, buffer.sender)
        self.marks[channel] = max(self.marks[channel], buffer.watermark)
        self.idle[channel] = buffer.is_idle
        active = [self.marks[c] for c in CHANNELS if not self.idle[c]]
        clock = min(active) if active else max(self.marks.values())
        if clock > self.clock:
            self.clock = clock
            return clock
        return None


watermarks = st.one_of(st.integers(0, 20), st.sampled_from([MIN_TIMESTAMP, MAX_TIMESTAMP]))
arrivals = st.lists(st.tuples(st.sampled_from(CHANNELS), watermarks, st.booleans()), max_size=40)


def buffer_of(channel: tuple[int, int], watermark: int, idle: bool) -> Buffer:
    return decode_buffer(encode_buffer(channel[0], channel[1], 0, watermark, idle, None))


@given(rounds=st.lists(arrivals, max_size=4))
def test_order_and_clock_are_those_of_the_rule(rounds: list[list[tuple[tuple[int, int], int, bool]]]) -> None:
    gate, naive = InputGate(CHANNELS), NaiveGate()
    for arrived in rounds:
        for channel, watermark, idle in arrived:
            found = buffer_of(channel, watermark, idle)
            gate.put(found)
            naive.buffers[channel].append(found)
        for given_first in gate.drain():
            assert given_first is naive.next()
            assert gate.advance(given_first) == naive.advance(given_first)
            assert gate.is_idle == all(naive.idle.values())
        assert naive.next() is None


@given(arrived=arrivals)
def test_buffers_that_are_processed_as_they_come_move_the_clock_likewise(
    arrived: list[tuple[tuple[int, int], int, bool]],
) -> None:
    gate, naive = InputGate(CHANNELS), NaiveGate()
    for channel, watermark, idle in arrived:
        found = buffer_of(channel, watermark, idle)
        assert gate.advance(found) == naive.advance(found)
        assert gate.watermark == naive.clock


@given(arrived=arrivals, more=arrivals)
def test_buffers_may_come_while_others_are_given_out(
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
    """Lines of the gate that run for a buffer, in the mean, as the clock goes on evenly."""
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
