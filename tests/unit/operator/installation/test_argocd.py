"""Argo CD's view of a FlinkJob.

`flows/test_flows.py` checks it at every moment of every flow, together with kstatus.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.viewers import health
from tests.unit.operator.world.scenarios.scenario import running


def with_condition(*conditions: tuple[str, str, str], observed: int = 2, generation: int = 2) -> dict[str, Any]:
    found = [{"type": t, "status": s, "reason": r, "message": f"{t} {r}"} for t, s, r in conditions]
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": observed, "conditions": found}}


@pytest.mark.parametrize(
    ("manifest", "status"),
    [
        ({"metadata": {"generation": 1}}, "Progressing"),
        ({"metadata": {"generation": 1}, "status": {}}, "Progressing"),
        (with_condition(("Ready", "True", "Running")), "Healthy"),
        (with_condition(("Ready", "True", "Running"), observed=1), "Progressing"),
        (with_condition(("Ready", "True", "Suspended")), "Suspended"),
        (with_condition(("Ready", "True", "Finished")), "Healthy"),
        (with_condition(("Ready", "False", "Upgrading"), ("Reconciling", "True", "Upgrade")), "Progressing"),
        (with_condition(("Ready", "False", "CheckFailed"), ("Stalled", "True", "CheckFailed")), "Degraded"),
    ],
)
def test_argo_cd_shows_the_health_of_a_flinkjob(manifest: dict[str, Any], status: str) -> None:
    assert health(manifest)[0] == status


def test_reconciling_comes_before_stalled_in_the_list() -> None:
    async def scenario() -> list[str]:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        return [c["type"] for c in world.status()["conditions"]]

    kinds = asyncio.run(scenario())
    assert kinds.index("Reconciling") < kinds.index("Stalled")
