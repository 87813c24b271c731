"""An operator continues from every status of an earlier version: the job reaches its goal, and no record is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.operator.golden_statuses.points import GOLDEN_SCENARIOS, read_sets
from tests.unit.operator.world.records import restored
from tests.unit.operator.world.scenarios.scenario import judge
from tests.unit.operator.world.world import World

SETS = read_sets()
FORMER_NAMES = {"askedSavepoints", "door", "told"}
"""Names of status fields in version 0.1.0 that later versions read and do not write."""
POINTS = [(version, state) for version, found in SETS.items() for state in found["points"]]


@pytest.mark.parametrize(("version", "state"), POINTS, ids=[f"{v}: {s}" for v, s in POINTS])
def test_the_operator_continues_from_a_status_of_an_earlier_version(version: str, state: str) -> None:
    point = SETS[version]["points"][state]
    asyncio.run(_go_on(point, restored(point, SETS[version]["objects"])))


async def _go_on(point: dict[str, Any], world: World) -> None:
    scenario = GOLDEN_SCENARIOS[point["scenario"]]
    for when, act in scenario.then[point["done"] :]:
        await world.until(lambda when=when: when(world))
        act(world)
    await world.until(lambda: scenario.ended(world))
    await world.run(40)
    assert scenario.ended(world), f"it did not stay so\n{world.describe()}"
    judge(scenario, world)
    job = world.cluster.one("FlinkJob", "weather")
    status = (job or {}).get("status") or {}
    assert not FORMER_NAMES & {*status, *(status.get("running") or {}), *(status.get("ends") or {})}
