"""Which passes go on at once, and in which order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock_operator.process.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def played(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 10))


class Passes:
    """Passes that end when they are told to; `begun` names them in the order in which they got a place."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.begun, self.ends, self.tasks = (
            gate,
            list[str](),
            dict[str, asyncio.Event](),
            dict[str, asyncio.Task[None]](),
        )

    async def begin(self, *names: str, urgent: bool = False) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._go(name, urgent))
        await asyncio.sleep(0.01)

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await asyncio.sleep(0.01)

    async def _go(self, name: str, urgent: bool) -> None:
        async with self.gate.place(urgent=urgent):
            self.begun.append(name)
            await self.ends[name].wait()


def test_so_many_at_once_in_the_order_they_came() -> None:
    async def scene() -> None:
        passes = Passes(Gate(2, lent=60))
        await passes.begin("a", "b", "c", "d")
        assert passes.begun == ["a", "b"]
        await passes.end("b")
        assert passes.begun == ["a", "b", "c"]

    played(scene)


def test_what_was_changed_goes_before_what_waits_for_its_turn() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, lent=60))
        await passes.begin("a", "b", "c")
        await passes.begin("edited", urgent=True)
        await passes.end("a")
        assert passes.begun == ["a", "edited"]

    played(scene)


def test_one_that_waits_for_others_holds_its_place_for_a_while_only() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, lent=0.05))
        await passes.begin("hangs", "next", "third")
        assert passes.begun == ["hangs"]
        await asyncio.sleep(0.06)
        assert passes.begun == ["hangs", "next"]
        await passes.end("hangs")
        assert passes.begun == ["hangs", "next"], "a place that was taken away is not given back again"
        await passes.end("next")
        assert passes.begun == ["hangs", "next", "third"]

    played(scene)


def test_one_that_is_cancelled_while_it_waits_keeps_no_place() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, lent=60))
        await passes.begin("a", "cancelled", "c")
        passes.tasks["cancelled"].cancel()
        await passes.end("a")
        assert passes.begun == ["a", "c"]
        await passes.begin("d")
        passes.ends["c"].set()
        passes.tasks["c"].cancel()  # in the same moment in which its place goes to the next
        await asyncio.sleep(0.01)
        assert passes.begun == ["a", "c", "d"]
        await passes.end("d")
        await passes.begin("e")
        assert passes.begun[-1] == "e"

    played(scene)


def test_one_that_is_cancelled_as_it_gets_its_place_passes_it_on() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, lent=60))
        await passes.begin("a", "b", "c")
        passes.ends["a"].set()
        await asyncio.sleep(0)  # a ends and hands its place to b, which has not run since
        passes.tasks["b"].cancel()
        await passes.begin("d")
        assert "c" in passes.begun, "the place went on"
        assert "d" not in passes.begun, "and there is one place still"
        await passes.end("c")
        assert passes.begun[-1] == "d"

    played(scene)
