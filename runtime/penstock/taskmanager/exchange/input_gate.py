"""Receiving side: the channels of one subtask, merged in watermark order.

A *channel* is one sender of one exchange. Flink's rule (T6, T7): the clock of a task is the minimum of the watermarks
of its channels, idle channels left out; when it advances, due timers fire before anything later is processed.

How buffers of several channels are interleaved decides how far the clock can follow. An epoch that carries an hour of
backlog would, read channel by channel, first process the whole hour of one sender and only then see the others: windows
would stay open for an hour of state, and processing order would differ from the live run. So, of the buffers at hand,
the one of the channel with the *lowest watermark* goes next (ties: lowest exchange, then sender). The event times that
meet in the operator are then close together, as they were live. Within a channel order is kept, always.

With hundreds of senders neither question, which buffer is next and how far the clock is, may look at all channels. Both are
answered by heaps whose entries may be out of date: a channel's watermark only rises, so an entry that is too low is found at
the top and put right then.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from penstock.records.batch import MIN_TIMESTAMP
from penstock.taskmanager.exchange.rows import Buffer


class _Channel:
    __slots__ = ("buffers", "idle", "is_in_heap", "rank", "watermark")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        """Its place among the channels, by exchange and sender."""
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        self.is_in_heap = True
        """Of the active ones."""
        self.buffers: deque[Buffer] = deque()


class InputGate:
    """Channels of one subtask.

    Args:
        channels: (exchange id, sender) of every channel that will ever send; a channel that has sent nothing holds the
            clock back, as it must.
    """

    def __init__(self, channels: Iterable[tuple[int, int]]) -> None:
        self._channels = {channel: _Channel(rank) for rank, channel in enumerate(sorted(channels))}
        self._by_rank = list(self._channels.values())
        self._active = [(MIN_TIMESTAMP, channel.rank) for channel in self._by_rank]
        """Heap of (watermark, rank): one entry for every channel that is not idle, and for some that are."""
        self._active_count = len(self._active)
        self._waiting: list[tuple[int, int]] = []
        """Heap of (watermark, rank): one entry for every channel with buffers."""
        self._highest = MIN_TIMESTAMP
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False

    def put(self, buffer: Buffer) -> None:
        channel = self._channels[buffer.exchange, buffer.sender]
        if not channel.buffers:
            heapq.heappush(self._waiting, (channel.watermark, channel.rank))
        channel.buffers.append(buffer)

    def drain(self) -> Iterator[Buffer]:
        """The buffers at hand in watermark order. The caller processes a buffer, then calls `advance` for it."""
        waiting = self._waiting
        while waiting:
            watermark, rank = waiting[0]
            channel = self._by_rank[rank]
            if channel.watermark > watermark:
                heapq.heapreplace(waiting, (channel.watermark, rank))
                continue
            buffer = channel.buffers.popleft()
            if not channel.buffers:
                heapq.heappop(waiting)
            yield buffer

    def advance(self, buffer: Buffer) -> int | None:
        """Take a processed buffer's watermark into account; the new clock if it advanced, else None."""
        channel = self._channels[buffer.exchange, buffer.sender]
        channel.watermark = max(channel.watermark, buffer.watermark)
        self._highest = max(self._highest, channel.watermark)
        self._set_idle(channel, is_idle=buffer.is_idle)
        self.is_idle = not self._active_count
        # All idle: the clock may go to the highest any of them reached (Flink's StatusWatermarkValve).
        lowest = self._highest if self.is_idle else self._lowest_active()
        if lowest > self.watermark:
            self.watermark = lowest
            return lowest
        return None

    def _set_idle(self, channel: _Channel, *, is_idle: bool) -> None:
        if channel.idle == is_idle:
            return
        channel.idle = is_idle
        self._active_count += -1 if is_idle else 1
        if not is_idle and not channel.is_in_heap:
            channel.is_in_heap = True
            heapq.heappush(self._active, (channel.watermark, channel.rank))

    def _lowest_active(self) -> int:
        active = self._active
        while True:
            watermark, rank = active[0]
            channel = self._by_rank[rank]
            if channel.idle:
                channel.is_in_heap = False
                heapq.heappop(active)
            elif channel.watermark > watermark:
                heapq.heapreplace(active, (channel.watermark, rank))
            else:
                return watermark
