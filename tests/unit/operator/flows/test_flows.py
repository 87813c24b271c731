"""The operator's flows from end to end, in a simulated world in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.viewers import check_status
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import Scenario, play

SECRET_VERBS = {"get", "create", "patch", "apply", "dry-run"}
"""The operator's requests for Secrets. It never lists, watches, replaces or deletes them."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_flow_ends_as_it_should_and_every_status_is_consistent(scenario: Scenario) -> None:
    world = World()
    written: list[dict[str, Any]] = []
    replace = world.cluster.replace

    async def noted(manifest: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        result = await replace(manifest, subresource=subresource)
        if manifest["kind"] == "FlinkJob":
            written.append(result)
        return result

    world.cluster.replace = noted  # type: ignore[method-assign]
    asyncio.run(play(scenario, world))
    assert written
    for manifest in written:
        check_status(manifest)
    assert {verb for verb, _, _ in world.cluster.secrets} <= SECRET_VERBS
    assert {(namespace, name) for _, namespace, name in world.cluster.secrets} <= {("default", "weather-secrets")}
