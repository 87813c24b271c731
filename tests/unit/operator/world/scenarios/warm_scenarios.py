"""Upgrades with standby pods that start before the old ones end, without edits and with every kind of edit in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import (
    Scenario,
    at,
    edit,
    equal,
    gone,
    pods_fit,
    rejected,
    running,
    spec,
    suspended,
)
from tests.unit.operator.world.world import World


def _warm(world: World) -> None:
    """Check that the running pods were on standby, except after a crash or failure, and that no old pods remain."""
    disturbed = world.crashes > 0 or (world.fault.struck and world.fault.mode.startswith("fail"))
    equal(bool(world.status()["running"].get("warm", False) or disturbed), True)
    equal({p["metadata"]["labels"]["penstock.dev/incarnation"] for p in _pods(world)}, {world.status()["jobId"]})


def _no_standby(world: World) -> None:
    running = world.status()["running"]
    equal(running.get("warm", False), running.get("checks", False))  # a first deployment has waited for its check
    equal([path for path in world.storage.released.values() if path], [])
    equal({p["metadata"]["labels"]["penstock.dev/incarnation"] for p in _pods(world)}, {world.status()["jobId"]})


def _given_up(world: World) -> bool:
    """Return whether the standby pods are gone although the upgrade continues. Their event may be lost."""
    op = world.status().get("operation") or {}
    return op.get("step") == "Stop" and op.get("attempt", 0) > 1 and "standby" not in op and len(_pods(world)) == 3


def _pods(world: World) -> list[dict[str, Any]]:
    return [p for role in ("master", "worker") for p in world.cluster.select("Pod", None, {"penstock.dev/role": role})]


def _no_room(world: World) -> None:
    world.deployments.quota = 2


WARM = {"warmStart": True}
PREPARING = at("Prepare", standby=True)


def _upgrade(name: str, ends: Callable[[World], Any], **more: Any) -> Scenario:
    """Return an upgrade to the second image. `ends` says when it is over."""
    return Scenario(f"warm-{name}", edit(image="job:2"), ends, manifest=spec(upgrade=WARM), **more)


WARM_SCENARIOS = [
    _upgrade(
        "upgrade",
        lambda w: running(w, image="job:2"),
        savepoints=1,
        check=_warm,
    ),
    _upgrade(
        "upgrade-twice",
        lambda w: running(w, image="job:3"),
        then=((lambda w: running(w, image="job:2"), edit(image="job:3")),),
        savepoints=2,
        check=_warm,
    ),
    _upgrade(
        "upgrade-without-room",
        lambda w: running(w, image="job:2"),
        prepare=_no_room,
        savepoints=1,
        check=_no_standby,
    ),
    _upgrade(
        "upgrade-to-an-image-that-cannot-stand-by",
        lambda w: running(w, image="job:2"),
        images={"job:2": Image(supports_standby=False)},
        savepoints=1,
        check=_no_standby,
    ),
    Scenario(
        "warm-upgrade-of-last-state",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        manifest=spec(upgrade=WARM, job={"upgradeMode": "last-state"}),
        check=_no_standby,
    ),
    Scenario(
        "warm-upgrade-and-rescale",
        edit(image="job:2", job={"parallelism": 4}),
        lambda w: running(w, image="job:2", parallelism=4),
        manifest=spec(upgrade=WARM),
        savepoints=1,
        check=_no_standby,
    ),
    Scenario(
        "warm-upgrade-to-another-number-of-pods",
        edit(image="job:2", worker={"replicas": 3}),
        lambda w: running(w, image="job:2"),
        manifest=spec(upgrade=WARM),
        savepoints=1,
        check=lambda w: (_no_standby(w), equal(len(_pods(w)), 4)),
    ),
    _upgrade(
        "spare-worker-while-preparing",
        lambda w: running(w, image="job:2") and len(_pods(w)) == 4,
        then=((PREPARING, edit(worker={"replicas": 3})),),
        savepoints=1,
        check=_warm,
    ),
    _upgrade(
        "upgrade-whose-savepoint-fails-again-and-again",
        lambda w: running(w, image="job:1") and "operation" not in w.status(),
        images={"job:1": Image(savepoints=False)},
        then=((_given_up, edit(image="job:1")),),
        check=_no_standby,
    ),
    _upgrade(
        "upgrade-whose-savepoint-fails",
        lambda w: running(w, image="job:1") and "operation" not in w.status(),
        images={"job:1": Image(savepoints=False)},
        then=((lambda w: (w.status().get("operation") or {}).get("attempt", 0) > 1, edit(image="job:1")),),
        check=_no_standby,
    ),
    _upgrade(
        "second-edit-while-preparing",
        lambda w: running(w, image="job:3"),
        then=((PREPARING, edit(image="job:3")),),
        savepoints=2,
        check=_warm,
    ),
    _upgrade(
        "revert-while-preparing",
        lambda w: running(w, image="job:1"),
        then=((PREPARING, edit(image="job:1")),),
        savepoints=2,
    ),
    _upgrade(
        "suspend-while-preparing",
        suspended,
        then=((PREPARING, edit(job={"state": "suspended"})),),
        savepoints=2,
        check=lambda w: equal(_pods(w), []),
    ),
    _upgrade(
        "rescale-while-preparing",
        lambda w: running(w, image="job:2", parallelism=4),
        then=((PREPARING, edit(job={"parallelism": 4})),),
        savepoints=1,
        check=pods_fit,
    ),
    _upgrade(
        "delete-while-preparing",
        gone,
        then=((PREPARING, lambda w: w.delete()),),
        savepoints=1,
    ),
    _upgrade(
        "second-edit-while-stopping",
        lambda w: running(w, image="job:3"),
        then=((at("Stop", triggerId=True), edit(image="job:3")),),
        savepoints=2,
    ),
    _upgrade(
        "revert-while-stopping",
        lambda w: running(w, image="job:1"),
        then=((at("Stop", triggerId=True), edit(image="job:1")),),
        savepoints=2,
    ),
    _upgrade(
        "suspend-while-stopping",
        suspended,
        then=((at("Stop", triggerId=True), edit(job={"state": "suspended"})),),
        savepoints=2,
        check=lambda w: equal(_pods(w), []),
    ),
    _upgrade(
        "second-edit-while-watching",
        lambda w: running(w, image="job:3"),
        then=((at("Watch"), edit(image="job:3")),),
        savepoints=2,
    ),
    _upgrade(
        "delete-while-handing-over",
        gone,
        then=((at("Start"), lambda w: w.delete()),),
        savepoints=1,
    ),
    Scenario(
        "warm-rollback",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        manifest=spec(upgrade=WARM, rollback={"after": "40s"}),
        images={"job:bad": Image(checkpoints=False)},
        savepoints=1,
        check=lambda w: equal(w.status()["running"].get("warm", False), False),
    ),
]
