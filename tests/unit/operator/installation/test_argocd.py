"""Argo CD's view of a FlinkJob, and the promises of kstatus, at every moment of every flow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import lupa
import pytest

from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.scenario import Scenario, play, running
from tests.unit.operator.world.scenarios import SCENARIOS

SCRIPT = (Path(__file__).parents[4] / "docs/operator/argocd-health.lua").read_text()


def health(manifest: dict[str, Any]) -> tuple[str, str]:
    """What Argo CD would show."""
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(manifest, recursive=True)
    result = lua.execute(SCRIPT)
    return str(result["status"]), str(result["message"])


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
def test_health(manifest: dict[str, Any], status: str) -> None:
    assert health(manifest)[0] == status


def kstatus(manifest: dict[str, Any]) -> str:
    """What kstatus makes of an object with conditions: its rules in its order."""
    status = manifest.get("status") or {}
    if status.get("observedGeneration") != manifest["metadata"]["generation"]:
        return "InProgress"
    for condition in status.get("conditions", ()):
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
    return "Current" if ready is not None and ready["status"] == "True" else "InProgress"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_every_status_ever_written_is_consistent(scenario: Scenario) -> None:
    """kstatus and Argo CD agree, at most one of Reconciling and Stalled holds, Ready never lies."""
    world = World()
    written: list[dict[str, Any]] = []
    replace = world.cluster.replace

    async def spy(manifest: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        result = await replace(manifest, subresource=subresource)
        if manifest["kind"] == "FlinkJob":
            written.append(result)
        return result

    world.cluster.replace = spy  # type: ignore[method-assign, assignment]
    asyncio.run(play(scenario, world))
    expected = {"Current": {"Healthy", "Suspended"}, "InProgress": {"Progressing"}, "Failed": {"Degraded"}}
    for manifest in written:
        truths = {c["type"]: c["status"] == "True" for c in manifest["status"]["conditions"]}
        assert not (truths["Reconciling"] and truths["Stalled"])
        assert not (truths["Ready"] and (truths["Reconciling"] or truths["Stalled"]))
        assert not (truths["Ready"] and "operation" in manifest["status"])
        assert health(manifest)[0] in expected[kstatus(manifest)]
        if truths["Stalled"]:
            stalled = next(c for c in manifest["status"]["conditions"] if c["type"] == "Stalled")
            assert stalled["message"], "a person is told what to do"


def test_reconciling_comes_before_stalled_in_the_list() -> None:
    async def scenario() -> list[str]:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        return [c["type"] for c in world.status()["conditions"]]

    kinds = asyncio.run(scenario())
    assert kinds.index("Reconciling") < kinds.index("Stalled")
