"""The selection of recorded statuses, and the scenarios that lead to them.

`python -m tests.unit.operator.golden_statuses.points VERSION` plays the scenarios with the current operator and writes
`VERSION.json.gz`. The file contains the world at the first moment of each distinct state. At that moment the operator
has written the status and has not acted on it, as a replaced operator leaves it. Create one set per release, and never
write an old one again.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.unit.operator.world import Image, World, flinkjob, flinksnapshot
from tests.unit.operator.world.records import record
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import (
    FOREIGN,
    Scenario,
    begin,
    both,
    edit,
    gone,
    running,
    spec,
    with_foreign_savepoint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.reconcile.job_loop import Transition
    from penstock_operator.snapshot.loop import SnapshotTransition

HERE = Path(__file__).parent
SNAPSHOT = "by-hand"


def _snapshot(state: str) -> Callable[[World], bool]:
    return lambda world: world.snapshots().get(SNAPSHOT, {}).get("state") == state


def _no_snapshot(world: World) -> bool:
    return world.cluster.one("FlinkSnapshot", SNAPSHOT) is None


def _apply(manifest: dict[str, Any]) -> Callable[[World], None]:
    return lambda world: world.apply(manifest)


SNAPSHOT_SCENARIOS = [
    Scenario(
        "snapshot-savepoint", _apply(flinksnapshot(SNAPSHOT)), both(running, _snapshot("Completed")), savepoints=1
    ),
    Scenario(
        "snapshot-checkpoint",
        _apply(flinksnapshot(SNAPSHOT, checkpoint={})),
        both(running, _snapshot("Completed")),
    ),
    Scenario(
        "snapshot-registered",
        _apply(flinksnapshot(SNAPSHOT, savepoint={"path": FOREIGN})),
        both(running, _snapshot("Completed")),
        prepare=with_foreign_savepoint,
        exact=False,
    ),
    Scenario(
        "snapshot-fails",
        _apply(flinksnapshot(SNAPSHOT, backoffLimit=1)),
        both(running, _snapshot("Failed")),
        images={"job:1": Image(savepoints=False)},
    ),
    Scenario(
        "snapshot-deleted",
        _apply(flinksnapshot(SNAPSHOT)),
        both(running, _no_snapshot),
        then=((_snapshot("Completed"), lambda w: w.cluster.remove("FlinkSnapshot", "default", SNAPSHOT)),),
        savepoints=1,
    ),
    Scenario(
        "snapshot-abandoned",
        _apply(flinksnapshot(SNAPSHOT)),
        both(gone, _snapshot("Abandoned")),
        manifest=spec(deletion={"savepoint": True}),
        images={"job:1": Image(savepoints=False)},
        then=((_snapshot("Pending"), lambda w: w.delete()),),
    ),
    Scenario(
        "invalid-edit",
        edit(configuration={"rest.port": 1}),
        running,
        then=((lambda w: w.stalled(), _apply(flinkjob())),),
    ),
]
GOLDEN_SCENARIOS = {scenario.name: scenario for scenario in (*SCENARIOS, *SNAPSHOT_SCENARIOS)}


def recorded() -> dict[str, Any]:
    """Play every scenario and return the worlds at the first moment of each state, and their objects by hash."""
    objects: dict[str, Any] = {}
    points: dict[str, Any] = {}
    for scenario in GOLDEN_SCENARIOS.values():
        world, stage = World(), [0]

        def keep(state: str, scenario: Scenario = scenario, world: World = world, stage: list[int] = stage) -> None:
            if state not in points:
                points[state] = {"scenario": scenario.name, "done": stage[0], **record(world, objects)}

        world.watch = lambda t, keep=keep: keep(_state_of_job(t))
        world.watch_snapshots = lambda t, keep=keep: keep(_state_of_snapshot(t))
        asyncio.run(_played(scenario, world, stage))
    return {"points": points, "objects": objects}


async def _played(scenario: Scenario, world: World, stage: list[int]) -> None:
    watches, world.watch, world.watch_snapshots = (
        (world.watch, world.watch_snapshots),
        lambda _: None,
        lambda _: None,
    )
    await begin(scenario, world)
    world.watch, world.watch_snapshots = watches
    scenario.act(world)
    for when, act in scenario.then:
        await world.until(lambda when=when: when(world))
        act(world)
        stage[0] += 1
    await world.until(lambda: scenario.ended(world))


def _state_of_job(transition: Transition) -> str:
    status = transition.after
    op = status.operation
    parts = [status.phase]
    marks: dict[str, Any]
    if op is not None:
        marks = {
            "asked": op.trigger_id,
            "answered": op.request_id,
            "pausing": op.retry_at,
            "fenced": op.fenced,
            "standing by": op.standby,
            "released": op.released,
        }
        parts += [op.kind, op.step, *(name for name, holds in marks.items() if holds), op.blocked or ""]
    else:
        marks = {
            "rejected": status.rejected,
            "stable": status.running is not None and status.running.stable,
            "saved": status.last_savepoint,
            "superseded": status.superseded,
            "asked": status.requested_savepoints,
        }
        parts += [name for name, holds in marks.items() if holds]
    return ", ".join(filter(None, parts))


def _state_of_snapshot(transition: SnapshotTransition) -> str:
    status = transition.after
    marks = ["tried" if status.failures else "", "answered" if status.request_id else ""]
    return ", ".join(["FlinkSnapshot", transition.kind, transition.trigger, status.state, *filter(None, marks)])


def main(version: str) -> None:
    """Write the set of a version."""
    text = json.dumps(recorded(), sort_keys=True, separators=(",", ":"))
    (HERE / f"{version}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def read_sets() -> dict[str, Any]:
    """Return all sets by version."""
    paths = sorted(HERE.glob("*.json.gz"))
    return {path.name.removesuffix(".json.gz"): json.loads(gzip.decompress(path.read_bytes())) for path in paths}


if __name__ == "__main__":
    main(sys.argv[1])
