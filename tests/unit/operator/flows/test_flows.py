"""The operator's flows from end to end, on a world in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.scenario import Scenario, play
from tests.unit.operator.world.scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_flow_ends_as_it_should(scenario: Scenario) -> None:
    asyncio.run(play(scenario, World()))
