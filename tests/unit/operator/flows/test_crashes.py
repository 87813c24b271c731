"""The operator dies, or a call fails, at every single changing call of every flow: the flow ends the same all the same.

One savepoint, one job, nothing lost, nothing repeated, nothing left over. The reads between two changes need no death
of their own: a process that dies after a read leaves the same world as one that died after the change before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.branches import at_calls, each, some
from tests.unit.operator.world.scenario import begin, go_on
from tests.unit.operator.world.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.unit.operator.world.faults import Mode
    from tests.unit.operator.world.scenario import Scenario

QUICK = {
    "deploy",
    "upgrade",
    "warm-upgrade",
    "suspend-and-resume",
    "rescale-up",
    "rollback-of-a-crashing-image",
    "delete-with-savepoint",
}
"""Flows that are run for every call each time; the others with the slow tests."""

FLOWS = [
    pytest.param(s.name, marks=[] if s.name in QUICK else [pytest.mark.slow, pytest.mark.faults]) for s in SCENARIOS
]


def by_name(name: str) -> Scenario:
    return next(s for s in SCENARIOS if s.name == name)


def at_every_call(scenario: Scenario, mode: Mode) -> None:
    """Play the flow once for each of its changing calls, with the fault there."""
    world = World()
    asyncio.run(begin(scenario, world))

    world.fault.mode = mode

    def undisturbed(_: int) -> int:
        asyncio.run(go_on(scenario, world))
        return len(world.fault.calls)

    async def with_fault() -> str:
        try:
            await go_on(scenario, world)
        except AssertionError as error:
            raise AssertionError(f"{scenario.name}, {world.fault.struck}: {error}") from None
        return world.fault.struck

    def any_struck(numbers: range) -> bool:
        return any(at_calls(numbers, world.fault, with_fault))

    [calls] = each([0], undisturbed)
    # Not every call can fail in every mode: of a short flow a stride may take none that can.
    assert any_struck(some(calls)) or any_struck(range(1, calls + 1)), f"none of {calls} calls was struck"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FLOWS)
def test_the_operator_may_die_after_any_call(name: str) -> None:
    at_every_call(by_name(name), "die-after")


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["fail-before", "fail-after"])
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS])
def test_any_call_may_fail_with_or_without_effect(name: str, mode: Mode) -> None:
    at_every_call(by_name(name), mode)
