"""The operator dies, or a call fails, at every changing call of every flow. The flow ends as without a fault.

It ends with one job and one savepoint. No record is lost or repeated, and no object remains. Reads between two changes need no fault. A process that dies after a read leaves the same world as one that dies after the previous change.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.scenarios.branches import at_calls, some
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import begin, go_on

if TYPE_CHECKING:
    from tests.unit.operator.world.faults import Mode
    from tests.unit.operator.world.scenarios.scenario import Scenario

QUICK = {
    "deploy",
    "upgrade",
    "warm-upgrade",
    "suspend-and-resume",
    "rescale-up",
    "autoscaled-up",
    "autoscaled-down",
    "rollback-of-a-crashing-image",
    "delete-with-savepoint",
}
"""Flows that run for every call in the quick tests. The other flows run in the slow tests."""

FLOWS = [
    pytest.param(s.name, marks=[] if s.name in QUICK else [pytest.mark.slow, pytest.mark.faults]) for s in SCENARIOS
]


def by_name(name: str) -> Scenario:
    return next(s for s in SCENARIOS if s.name == name)


def at_every_call(scenario: Scenario, mode: Mode) -> None:
    """Play the flow once for each of its changing calls, with the fault at that call."""
    world = World()
    asyncio.run(begin(scenario, world))

    world.fault.mode = mode

    async def with_fault() -> str:
        try:
            await go_on(scenario, world)
        except AssertionError as error:
            raise AssertionError(f"{scenario.name}, {world.fault.struck}: {error}") from None
        return world.fault.struck

    def any_struck(numbers: range) -> bool:
        return any(at_calls(numbers, world.fault, with_fault))

    # Not every call can fail in every mode. A stride through a short flow may contain no call that can.
    assert any_struck(some()) or any_struck(range(1, sys.maxsize)), "no call was struck"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_survives_the_death_of_the_operator_after_any_call(name: str) -> None:
    at_every_call(by_name(name), "die-after")


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["fail-before", "fail-after"])
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS])
def test_a_flow_survives_a_failure_of_any_call_with_or_without_effect(name: str, mode: Mode) -> None:
    at_every_call(by_name(name), mode)
