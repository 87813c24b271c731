"""How many passes go on at once, and which goes first.

Passes are bounded, so that after a restart neither the API server nor this process is overrun. What a pass waits for is mostly
other people's: a master that hangs, storage that does not answer. A few of those would hold every place for as long as their
time limits are, and all other jobs would wait. So a place is lent for a short time only, and what somebody has just changed
goes before what is looked at for its time has come.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Gate:
    """Places for passes.

    `places`: passes that begin without having to wait for another's end; `lent`: seconds after which a pass that goes on has its
    place taken away. Urgent ones go first, then those that came first.
    """

    def __init__(self, places: int, lent: float) -> None:
        self._free, self._lent, self._came = places, lent, 0
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def place(self, *, urgent: bool) -> AsyncIterator[None]:
        """Wait for a place, and hold it for a while."""
        await self._enter(urgent)
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._leave()

        end = asyncio.get_running_loop().call_later(self._lent, give_back)
        try:
            yield
        finally:
            end.cancel()
            give_back()

    async def _enter(self, urgent: bool) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._waiting, (not urgent, self._came, turn))
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
