"""The receiving side of an exchange: the channels of one subtask, merged in watermark order.

A *channel* is one sender of one exchange. The gate follows Flink's rule: the clock of a task is the minimum of the watermarks
of its channels, without idle channels. When the clock advances, due timers fire before later records are processed.

A channel that has *ended* has sent the final watermark. Such a channel does not hold the clock back. Its final
watermark also does not advance the clock, because a channel that is idle now may send more records. If no channel is
active, the clock moves to the highest watermark of all channels, without final watermarks. When all channels have
ended, the clock moves to the final watermark.

The order of the buffers decides how far the clock can follow. Suppose an epoch carries a backlog of one hour. If the
gate took one channel after the other, it would process the whole hour of one sender before the other senders. Windows
would remain open for an hour of state, and the processing order would differ from the live run. So the gate takes the
buffer of the channel with the *lowest watermark* next (ties: lowest exchange, then sender).

The event times in the operator are then close together, as in the live run. The order within a channel never changes.

If there are hundreds of senders, the gate must not check all channels to find the next buffer or the clock. It uses two
heaps whose entries may be outdated. A channel's watermark only rises, so an entry that is too low reaches
the top of the heap, where the gate corrects it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.taskmanager.exchange.rows import Buffer


class _Channel:
    __slots__ = ("buffers", "is_active", "is_in_heap", "is_timekeeper", "rank", "watermark")

    def __init__(self, rank: int, *, is_timekeeper: bool) -> None:
        self.rank = rank
        """The channel's position in the order of exchange and sender."""
        self.is_timekeeper = is_timekeeper
        self.watermark = MIN_TIMESTAMP
        self.is_active = True
        """True if the channel is neither idle nor ended, so that it holds the clock back."""
        self.is_in_heap = True
        """True if the heap of active channels has an entry for this channel."""
        self.buffers: deque[Buffer] = deque()


class InputGate:
    """The channels of one subtask.

    Args:
        channels: (exchange id, sender) of every channel that will ever send. A channel that has sent nothing holds the
            clock back.
        timeless: channels whose source has no time (the feedback of an iteration). The input can end without them.
    """

    def __init__(self, channels: Iterable[tuple[int, int]], timeless: Collection[tuple[int, int]] = ()) -> None:
        known = sorted(channels)
        timekeepers = {channel for channel in known if channel not in timeless} or set(known)
        self._channels = {
            channel: _Channel(rank, is_timekeeper=channel in timekeepers) for rank, channel in enumerate(known)
        }
        self._unended = len(timekeepers)
        """Number of channels that keep time and have not ended."""
        self._by_rank = list(self._channels.values())
        self._active = [(MIN_TIMESTAMP, channel.rank) for channel in self._by_rank]
        """Heap of (watermark, rank): an entry for every active channel, and for some inactive channels."""
        self._active_count = len(self._active)
        self._waiting: list[tuple[int, int]] = []
        """Heap of (watermark, rank): an entry for every channel with buffers."""
        self._highest = MIN_TIMESTAMP
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False

    def put(self, buffer: Buffer) -> None:
        channel = self._channels[buffer.exchange, buffer.sender]
        if not channel.buffers:
            heapq.heappush(self._waiting, (channel.watermark, channel.rank))
        channel.buffers.append(buffer)

    def drain(self) -> Iterator[Buffer]:
        """Yield the waiting buffers in watermark order.

        The caller must process each buffer and then call `advance` with it.
        """
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
        """Apply the watermark of a processed buffer. Return the new clock if it advanced, else None."""
        channel = self._channels[buffer.exchange, buffer.sender]
        if buffer.watermark > channel.watermark:
            channel.watermark = buffer.watermark
            if buffer.watermark == MAX_TIMESTAMP:
                self._unended -= channel.is_timekeeper
            elif buffer.watermark > self._highest:
                self._highest = buffer.watermark
        self._set_active(channel, is_active=not buffer.is_idle and channel.watermark != MAX_TIMESTAMP)
        if not self._unended:
            self.is_idle, clock = False, MAX_TIMESTAMP
        elif self._active_count:
            self.is_idle, clock = False, self._lowest_active()
        else:  # as in Flink's StatusWatermarkValve
            self.is_idle, clock = True, self._highest
        if clock > self.watermark:
            self.watermark = clock
            return clock
        return None

    def _set_active(self, channel: _Channel, *, is_active: bool) -> None:
        if channel.is_active == is_active:
            return
        channel.is_active = is_active
        self._active_count += 1 if is_active else -1
        if is_active and not channel.is_in_heap:
            channel.is_in_heap = True
            heapq.heappush(self._active, (channel.watermark, channel.rank))

    def _lowest_active(self) -> int:
        active = self._active
        while True:
            watermark, rank = active[0]
            channel = self._by_rank[rank]
            if not channel.is_active:
                channel.is_in_heap = False
                heapq.heappop(active)
            elif channel.watermark > watermark:
                heapq.heapreplace(active, (channel.watermark, rank))
            else:
                return watermark
