"""Receiving side: the channels of one subtask, merged in watermark order.

A *channel* is one sender of one exchange. Flink's rule (T6, T7): the clock of a task is the minimum of the watermarks
of its channels, idle channels left out; when it advances, due timers fire before anything later is processed.

How buffers of several channels are interleaved decides how far the clock can follow. An epoch that carries an hour of
backlog would, read channel by channel, first process the whole hour of one sender and only then see the others: windows
would stay open for an hour of state, and processing order would differ from the live run. So, of the buffers at hand,
the one of the channel with the *lowest watermark* goes next (ties: lowest exchange, then sender). The event times that
meet in the operator are then close together, as they were live. Within a channel order is kept, always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from penstock.taskmanager.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.taskmanager.rows import Buffer


class _Channel:
    __slots__ = ("buffers", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        self.buffers: deque[Buffer] = deque()


class InputGate:
    """Channels of one subtask.

    Args:
        channels: (exchange id, sender) of every channel that will ever send; a channel that has sent nothing holds the
            clock back, as it must.
    """

    def __init__(self, channels: Iterable[tuple[int, int]]) -> None:
        self._channels = {channel: _Channel() for channel in sorted(channels)}
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False

    def put(self, buffer: Buffer) -> None:
        self._channels[buffer.exchange, buffer.sender].buffers.append(buffer)

    def drain(self) -> Iterator[Buffer]:
        """The buffers at hand in watermark order. The caller processes a buffer, then calls `advance` for it."""
        while True:
            best: _Channel | None = None
            for channel in self._channels.values():
                if channel.buffers and (best is None or channel.watermark < best.watermark):
                    best = channel
            if best is None:
                return
            yield best.buffers.popleft()

    def advance(self, buffer: Buffer) -> int | None:
        """Take a processed buffer's watermark into account; the new clock if it advanced, else None."""
        channel = self._channels[buffer.exchange, buffer.sender]
        if buffer.watermark > channel.watermark:
            channel.watermark = buffer.watermark
        channel.idle = buffer.is_idle
        lowest = MAX_TIMESTAMP
        active = False
        for other in self._channels.values():
            if not other.idle:
                active = True
                if other.watermark < lowest:
                    lowest = other.watermark
        self.is_idle = not active
        if not active:
            # All idle: the clock may go to the highest any of them reached (Flink's StatusWatermarkValve).
            lowest = max(c.watermark for c in self._channels.values())
        if lowest > self.watermark:
            self.watermark = lowest
            return lowest
        return None
