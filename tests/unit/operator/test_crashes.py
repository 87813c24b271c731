"""The operator dies, or a call fails, at every single changing call of every flow: the flow ends the same all the same.

One savepoint, one job, nothing lost, nothing repeated, nothing left over. The reads between two changes need no death
of their own: a process that dies after a read leaves the same world as one that died after the change before it.
"""

from __future__ import annotations

import asyncio
from functools import cache

import pytest

from tests.unit.operator.world import Fault, World
from tests.unit.operator.world.scenarios import SCENARIOS, Scenario, play

QUICK = {
    "deploy",
    "upgrade",
    "suspend-and-resume",
    "rescale-up",
    "rollback-of-a-crashing-image",
    "delete-with-savepoint",
}
"""Flows that are run for every call each time; the others with the slow tests."""

FLOWS = [pytest.param(s.name, marks=[] if s.name in QUICK else [pytest.mark.slow]) for s in SCENARIOS]


@cache
def calls_of(name: str) -> int:
    """How many changing calls the flow makes when nothing goes wrong."""
    world = World()
    asyncio.run(play(by_name(name), world))
    return len(world.fault.calls)


def by_name(name: str) -> Scenario:
    return next(s for s in SCENARIOS if s.name == name)


def run_with(scenario: Scenario, at: int, mode: str) -> None:
    world = World(Fault(at=at, mode=mode))  # type: ignore[arg-type]
    try:
        asyncio.run(play(scenario, world))
    except AssertionError as error:
        raise AssertionError(f"{scenario.name}, {world.fault.struck}: {error}") from None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FLOWS)
def test_the_operator_may_die_after_any_call(name: str) -> None:
    for at in range(1, calls_of(name) + 1):
        run_with(by_name(name), at, "die-after")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["fail-before", "fail-after"])
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS])
def test_any_call_may_fail_with_or_without_effect(name: str, mode: str) -> None:
    for at in range(1, calls_of(name) + 1):
        run_with(by_name(name), at, mode)
