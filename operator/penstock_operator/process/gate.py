"""The limit of concurrent passes, and their order.

Concurrency is limited, so that a restart of the operator does not overload the API server or this process. A pass
mostly waits for other systems, such as a master that hangs or a storage that does not respond. A few such passes
could occupy all places until their timeouts, while all other jobs wait. So a pass only holds its place for a short
time. Passes after an event run before periodic passes.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Gate:
    """Places for concurrent passes. Urgent passes run before the other passes. Passes of the same kind run in the order
    of their arrival.

    `slots` is the number of places. `seconds` is the number of seconds after which a pass loses its place and continues
    without it.
    """

    def __init__(self, slots: int, seconds: float) -> None:
        self._free, self._seconds, self._arrivals = slots, seconds, 0
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, *, urgent: bool) -> AsyncIterator[None]:
        """Wait for a place, and hold it for a limited time."""
        await self._enter(urgent)
        is_taken = True

        def release() -> None:
            nonlocal is_taken
            if is_taken:
                is_taken = False
                self._leave()

        end = asyncio.get_running_loop().call_later(self._seconds, release)
        try:
            yield
        finally:
            end.cancel()
            release()

    async def _enter(self, urgent: bool) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (not urgent, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
