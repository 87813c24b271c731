"""The gate that limits concurrent passes and decides their order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock_operator.process.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def played(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 10))


class Passes:
    """Passes that end when the test requests it. `started` names them in the order of their starts."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.started, self.ends, self.tasks = (
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
        async with self.gate.slot(urgent=urgent):
            self.started.append(name)
            await self.ends[name].wait()


def test_a_limited_number_of_passes_runs_in_order_of_arrival() -> None:
    async def scene() -> None:
        passes = Passes(Gate(2, seconds=60))
        await passes.begin("a", "b", "c", "d")
        assert passes.started == ["a", "b"]
        await passes.end("b")
        assert passes.started == ["a", "b", "c"]

    played(scene)


def test_changed_objects_go_before_periodic_checks() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, seconds=60))
        await passes.begin("a", "b", "c")
        await passes.begin("edited", urgent=True)
        await passes.end("a")
        assert passes.started == ["a", "edited"]

    played(scene)


def test_a_pass_that_waits_for_others_keeps_its_slot_only_for_a_while() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, seconds=0.05))
        await passes.begin("hangs", "next", "third")
        assert passes.started == ["hangs"]
        await asyncio.sleep(0.06)
        assert passes.started == ["hangs", "next"]
        await passes.end("hangs")
        assert passes.started == ["hangs", "next"], "a place that was taken away is not given back again"
        await passes.end("next")
        assert passes.started == ["hangs", "next", "third"]

    played(scene)


def test_a_pass_that_is_cancelled_while_it_waits_keeps_no_slot() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, seconds=60))
        await passes.begin("a", "cancelled", "c")
        passes.tasks["cancelled"].cancel()
        await passes.end("a")
        assert passes.started == ["a", "c"]
        await passes.begin("d")
        passes.ends["c"].set()
        passes.tasks["c"].cancel()  # in the same moment in which its slot is passed to the next
        await asyncio.sleep(0.01)
        assert passes.started == ["a", "c", "d"]
        await passes.end("d")
        await passes.begin("e")
        assert passes.started[-1] == "e"

    played(scene)


def test_a_pass_that_is_cancelled_as_it_gets_its_slot_passes_it_on() -> None:
    async def scene() -> None:
        passes = Passes(Gate(1, seconds=60))
        await passes.begin("a", "b", "c")
        passes.ends["a"].set()
        await asyncio.sleep(0)  # a ends and passes its slot to b, which has not run since
        passes.tasks["b"].cancel()
        await passes.begin("d")
        assert "c" in passes.started, "the place went on"
        assert "d" not in passes.started, "and there is one place still"
        await passes.end("c")
        assert passes.started[-1] == "d"

    played(scene)
