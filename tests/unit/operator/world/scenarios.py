"""The flows of a FlinkJob's life, each as: how it begins, what the user does, when it has ended, what must hold then.

They are run once as they are (`test_flows`), and once more for every call the operator makes in them, with the operator
dying or the call failing just there (`test_crashes`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.unit.operator.world.images import Image
from tests.unit.operator.world.storage import Stored
from tests.unit.operator.world.world import NAME, START, World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Callable


FOREIGN = "s3://bucket/elsewhere/savepoint-abcdef-0123456789ab"


@dataclass(frozen=True)
class Scenario:
    """`begin` is applied to a new world and waited for; `act` is the user's change; `ended` says when to stop."""

    name: str
    act: Callable[[World], None]
    ended: Callable[[World], bool]
    manifest: dict[str, Any] = field(default_factory=flinkjob)
    images: dict[str, Image] = field(default_factory=dict)
    prepare: Callable[[World], None] = lambda world: None
    deployed: bool = True
    """The job runs and is stable before `act`."""
    settle_first: float = 25
    """Seconds that it runs before `act`."""
    then: tuple[tuple[Callable[[World], bool], Callable[[World], None]], ...] = ()
    """What the user does next, each as soon as something is so (an operation has come to a step, say)."""
    savepoints: int = 0
    """How many savepoints there are at the end: never more."""
    exact: bool = True
    """No record is lost or repeated in the output."""
    empty_starts: int = 1
    """How often the job was started without state."""
    check: Callable[[World], None] = lambda world: None


def running(world: World, **expected: Any) -> bool:
    """Settled, and what runs is as expected."""
    if not world.settled() or world.status()["phase"] != "Running":
        return False
    actual = world.status().get("running", {})
    return all(actual.get(key) == value for key, value in expected.items())


def at(step: str, **fields: Any) -> Callable[[World], bool]:
    """The operation has come to this step (or went past it without being seen there)."""

    def reached(world: World) -> bool:
        op = world.status().get("operation") if not gone(world) else None
        here = op is not None and op["step"] == step and all(bool(op.get(k)) == v for k, v in fields.items())
        return (
            here or (op is None and world.settled()) or (op is not None and step == "Check" and op["step"] != "Check")
        )

    return reached


def suspended(world: World) -> bool:
    return world.settled() and world.status()["phase"] == "Suspended"


def gone(world: World) -> bool:
    return world.cluster.one("FlinkJob", NAME) is None


def rejected(world: World) -> bool:
    return world.stalled() and "operation" not in world.status() and "rejected" in world.status()


def snapshotted(trigger: str, number: int = 1) -> Callable[[World], bool]:
    """So many snapshots of this trigger exist, all complete."""

    def reached(world: World) -> bool:
        found = world.snapshots(trigger=trigger)
        return len(found) == number and all(s.get("state") == "Completed" for s in found.values())

    return reached


def both(*conditions: Callable[[World], bool]) -> Callable[[World], bool]:
    return lambda world: all(condition(world) for condition in conditions)


def with_foreign_savepoint(world: World) -> None:
    world.storage.put(Stored(FOREIGN, 7, "f" * 32, 70, START))
    world.sink.ends[NAME] = 70


def edit(**changes: Any) -> Callable[[World], None]:
    return lambda world: world.edit(**changes)


def remove(kind: str, name: str) -> Callable[[World], None]:
    return lambda world: world.cluster.remove(kind, "default", name)


def spec(**parts: Any) -> dict[str, Any]:
    manifest = flinkjob()
    for key, value in parts.items():
        if isinstance(value, dict):
            manifest["spec"].setdefault(key, {}).update(value)
        else:
            manifest["spec"][key] = value
    return manifest


def _pods_fit(world: World) -> None:
    workers = world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})
    wanted = world.status()["parallelism"]
    assert len(workers) == wanted, f"{len(workers)} workers for parallelism {wanted}"


SCENARIOS = [
    Scenario("deploy", lambda w: w.apply(flinkjob()), running, deployed=False),
    Scenario(
        "deploy-from-savepoint",
        lambda w: w.apply(flinkjob(initialSavepointPath=FOREIGN)),
        running,
        deployed=False,
        prepare=with_foreign_savepoint,
        empty_starts=0,
    ),
    Scenario("upgrade", edit(image="job:2"), lambda w: running(w, image="job:2"), savepoints=1),
    Scenario(
        "upgrade-last-state",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        manifest=spec(job={"upgradeMode": "last-state"}),
    ),
    Scenario(
        "upgrade-stateless",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        manifest=spec(job={"upgradeMode": "stateless"}),
        exact=False,
        empty_starts=2,
    ),
    Scenario(
        "savepoint-nonce",
        edit(job={"savepointTriggerNonce": 1}),
        both(running, snapshotted("nonce")),
        savepoints=1,
    ),
    Scenario("checkpoint-nonce", edit(job={"checkpointTriggerNonce": 1}), both(running, snapshotted("nonce"))),
    Scenario(
        "savepoint-nonce-with-an-upgrade",
        edit(image="job:2", job={"savepointTriggerNonce": 1}),
        both(lambda w: running(w, image="job:2"), snapshotted("nonce")),
        savepoints=2,
    ),
    Scenario("restart-nonce", edit(job={"restartNonce": 1}), lambda w: running(w, generation=2), savepoints=1),
    Scenario("rescale-up", edit(job={"parallelism": 4}), lambda w: running(w, parallelism=4), check=_pods_fit),
    Scenario("rescale-down", edit(job={"parallelism": 1}), lambda w: running(w, parallelism=1), check=_pods_fit),
    Scenario(
        "rescale-and-upgrade",
        edit(image="job:2", job={"parallelism": 4}),
        lambda w: running(w, image="job:2", parallelism=4),
        savepoints=1,
        check=_pods_fit,
    ),
    Scenario("suspend", edit(job={"state": "suspended"}), suspended, savepoints=1),
    Scenario(
        "suspend-and-resume",
        edit(job={"state": "suspended"}),
        running,
        then=((suspended, edit(job={"state": "running"})),),
        savepoints=1,
    ),
    Scenario(
        "resume-empty",
        edit(job={"state": "suspended"}),
        running,
        then=((suspended, edit(job={"state": "running", "upgradeMode": "stateless"})),),
        savepoints=1,
        exact=False,
        empty_starts=2,
    ),
    Scenario(
        "resume-an-image-that-crashes",
        edit(job={"state": "suspended"}),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        images={"job:bad": Image(starts=False)},
        then=((suspended, edit(image="job:bad", job={"state": "running"})),),
        savepoints=1,
    ),
    Scenario(
        "resume-another-image",
        edit(job={"state": "suspended"}),
        lambda w: running(w, image="job:2"),
        then=((suspended, edit(image="job:2", job={"state": "running"})),),
        savepoints=1,
    ),
    Scenario(
        "second-edit-while-checking",
        edit(image="job:2"),
        lambda w: running(w, image="job:3"),
        then=((at("Check"), edit(image="job:3")),),
        savepoints=1,
    ),
    Scenario(
        "revert-while-checking",
        edit(image="job:2"),
        lambda w: running(w, image="job:1"),
        then=((at("Check"), edit(image="job:1")),),
        savepoints=2,
    ),
    Scenario(
        "second-edit-while-stopping",
        edit(image="job:2"),
        lambda w: running(w, image="job:3"),
        then=((at("Stop", triggerId=True), edit(image="job:3")),),
        savepoints=2,
    ),
    Scenario(
        "revert-while-stopping",
        edit(image="job:2"),
        lambda w: running(w, image="job:1"),
        then=((at("Stop", triggerId=True), edit(image="job:1")),),
        savepoints=2,
    ),
    Scenario(
        "second-edit-while-watching",
        edit(image="job:2"),
        lambda w: running(w, image="job:3"),
        then=((at("Watch"), edit(image="job:3")),),
        savepoints=2,
    ),
    Scenario(
        "second-edit-while-not-running",
        edit(image="job:bad"),
        lambda w: running(w, image="job:3"),
        images={"job:bad": Image(starts=False)},
        then=((at("Watch"), edit(image="job:3")),),
        savepoints=1,
    ),
    Scenario(
        "last-state-after-savepoint",
        edit(image="job:2"),
        lambda w: running(w, image="job:3"),
        then=((lambda w: running(w, image="job:2"), edit(image="job:3", job={"upgradeMode": "last-state"})),),
        savepoints=1,
    ),
    Scenario(
        "suspend-while-upgrading",
        edit(image="job:2"),
        suspended,
        then=((at("Stop", triggerId=True), edit(job={"state": "suspended"})),),
        savepoints=2,
    ),
    Scenario(
        "delete-while-upgrading",
        edit(image="job:2"),
        gone,
        then=((at("Teardown"), lambda w: w.delete()),),
        savepoints=1,
    ),
    Scenario(
        "second-rescale-in-the-middle",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=3),
        then=((at("Rescale"), edit(job={"parallelism": 3})),),
        check=_pods_fit,
    ),
    Scenario(
        "rescale-reverted-in-the-middle",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=2),
        then=((at("AddWorkers"), edit(job={"parallelism": 2})),),
        check=_pods_fit,
    ),
    Scenario(
        "rescale-reverted-while-the-engine-is-at-it",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=2),
        then=((at("Rescale", triggerId=True), edit(job={"parallelism": 2})),),
        check=_pods_fit,
    ),
    Scenario(
        "suspend-while-rescaling",
        edit(job={"parallelism": 4}),
        suspended,
        then=((at("AddWorkers"), edit(job={"state": "suspended"})),),
        savepoints=1,
    ),
    Scenario(
        "delete-while-rescaling",
        edit(job={"parallelism": 4}),
        gone,
        then=((at("Rescale", triggerId=True), lambda w: w.delete()),),
    ),
    Scenario(
        "upgrade-while-rescaling",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=4, image="job:2"),
        then=((at("Rescale", triggerId=True), edit(image="job:2")),),
        savepoints=1,
        check=_pods_fit,
    ),
    Scenario(
        "rollback",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        manifest=spec(rollback={"after": "40s"}),
        images={"job:bad": Image(checkpoints=False)},
        savepoints=1,
    ),
    Scenario(
        "rollback-of-a-crashing-image",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        images={"job:bad": Image(starts=False)},
        savepoints=1,
    ),
    Scenario(
        "rollback-of-last-state",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        manifest=spec(job={"upgradeMode": "last-state"}, rollback={"after": "40s"}),
        images={"job:bad": Image(checkpoints=False)},
    ),
    Scenario(
        "rollback-of-stateless-keeps-the-state",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        manifest=spec(job={"upgradeMode": "stateless"}),
        images={"job:bad": Image(starts=False)},
        check=lambda w: _equal(w.status()["running"]["restoredFrom"]["kind"], "Checkpoint"),
    ),
    Scenario(
        "edit-while-rolling-back",
        edit(image="job:bad"),
        lambda w: running(w, image="job:3"),
        images={"job:bad": Image(starts=False)},
        then=((lambda w: w.status().get("phase") == "RollingBack", edit(image="job:3")),),
        savepoints=2,
    ),
    Scenario(
        "savepoints-fail-until-last-state",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        images={"job:1": Image(savepoints=False)},
        then=((lambda w: w.stalled() or running(w, image="job:2"), edit(job={"upgradeMode": "last-state"})),),
    ),
    Scenario(
        "master-dies-in-its-savepoint",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        then=((at("Stop", triggerId=True), lambda w: w.crash_master()),),
        savepoints=1,
    ),
    Scenario(
        "upgrade-of-a-failed-job",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        manifest=spec(recovery={"restartFailed": False}),
        images={"job:1": Image(fails_after=50)},
        settle_first=60,
    ),
    Scenario(
        "upgrade-of-a-finished-job",
        edit(image="job:2"),
        lambda w: running(w, image="job:2"),
        images={"job:1": Image(ends_at=400)},
        settle_first=60,
    ),
    Scenario(
        "refused-by-check",
        edit(image="job:bad"),
        lambda w: rejected(w) and w.status()["running"]["image"] == "job:1",
        images={
            "job:bad": Image(check={"ok": False, "problems": [{"code": "STATE", "message": "uid 'dedup' is gone"}]})
        },
    ),
    Scenario(
        "redeploy",
        edit(job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
        lambda w: running(w, generation=2),
        prepare=with_foreign_savepoint,
        exact=False,
        check=lambda w: _equal(w.status()["running"]["restoredFrom"]["path"], FOREIGN),
    ),
    Scenario(
        "redeploy-while-suspended",
        edit(job={"state": "suspended"}),
        lambda w: running(w, generation=3),
        then=(
            (
                suspended,
                edit(job={"state": "running", "initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
            ),
        ),
        prepare=with_foreign_savepoint,
        exact=False,
        savepoints=1,
        check=lambda w: _equal(w.status()["running"]["restoredFrom"]["path"], FOREIGN),
    ),
    Scenario(
        "redeploy-of-an-image-that-crashes",
        edit(image="job:bad", job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        prepare=with_foreign_savepoint,
        images={"job:bad": Image(starts=False)},
        exact=False,
        check=lambda w: _equal(w.status()["running"]["restoredFrom"]["kind"], "Checkpoint"),
    ),
    Scenario(
        "redeploy-of-nothing",
        edit(job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
        lambda w: rejected(w) and w.status()["running"]["image"] == "job:1",
        check=lambda w: _equal(w.leading(NAME).state if w.leading(NAME) else None, "RUNNING"),
    ),
    Scenario(
        "master-deleted",
        remove("Deployment", f"{NAME}-master"),
        lambda w: running(w) and w.leading(NAME) is not None and bool(w.status()["history"][1:]),
    ),
    Scenario(
        "failed-job",
        lambda w: w.images.update({"job:1": Image()}),
        lambda w: running(w) and len(w.sink.restores) > 0 and w.sink.ends[NAME] > 1200,
        images={"job:1": Image(fails_after=60)},
        settle_first=62,
    ),
    Scenario(
        "upgrade-with-a-lost-node",
        lambda w: (w.lose_node(), w.edit(image="job:2"))[-1],
        lambda w: running(w, image="job:2"),
    ),
    Scenario("delete", lambda w: w.delete(), gone),
    Scenario(
        "delete-with-savepoint", lambda w: w.delete(), gone, manifest=spec(deletion={"savepoint": True}), savepoints=1
    ),
    Scenario(
        "delete-with-storage",
        lambda w: w.delete(),
        gone,
        manifest=spec(deletion={"storage": "Delete"}),
        check=lambda w: _equal([p for p in w.storage.found if p.startswith(w.storage.root)], []),
    ),
    Scenario(
        "finish",
        lambda w: None,
        lambda w: w.settled() and w.status()["phase"] == "Finished",
        images={"job:1": Image(ends_at=400)},
    ),
]


def _equal(actual: object, expected: object) -> None:
    assert actual == expected, f"{actual!r} instead of {expected!r}"


async def play(scenario: Scenario, world: World) -> None:
    """Run a scenario to its end and check what must hold. Faults count from the user's change on."""
    fault_at, world.fault.at = world.fault.at, 0
    await begin(scenario, world)
    world.fault.at = fault_at
    await go_on(scenario, world)


async def begin(scenario: Scenario, world: World) -> None:
    """Up to the moment before the user's change; what comes until then is the same whatever goes wrong after it."""
    world.images.update(scenario.images)
    scenario.prepare(world)
    if scenario.deployed:
        world.apply(scenario.manifest)
        await world.until(lambda: running(world))
        await world.run(scenario.settle_first)
    world.fault.calls.clear()


async def go_on(scenario: Scenario, world: World) -> None:
    """The user's change, and everything that follows."""
    scenario.act(world)
    for when, act in scenario.then:
        await world.until(lambda when=when: when(world))  # type: ignore[misc]
        act(world)
    await world.until(lambda: scenario.ended(world))
    world.fault.at = 0
    await world.run(40)
    assert scenario.ended(world), f"it did not stay so\n{world.describe()}"
    judge(scenario, world)


def judge(scenario: Scenario, world: World) -> None:
    """What must hold at the end of every scenario, whatever went wrong on the way."""
    story = world.describe()
    assert not world.two_masters, f"{world.two_masters[:3]}\n{story}"
    assert len(world.savepoints) <= scenario.savepoints, f"{world.savepoints}\n{story}"
    assert len(world.sink.empty_starts) <= scenario.empty_starts, f"{world.sink.empty_starts}\n{story}"
    if scenario.exact:
        assert not world.sink.lost, f"{world.sink.lost}\n{story}"
        assert not world.sink.repeated, f"{world.sink.repeated}\n{story}"
    if not gone(world) and world.settled() and world.status()["phase"] == "Running":
        folders = {p.split("/")[4] for p in world.storage.found if p.startswith(f"{world.storage.root}/")}
        assert folders <= {world.status()["jobId"]}, f"checkpoints of former incarnations are left: {folders}\n{story}"
    if gone(world):
        left = [key for key in world.cluster.objects if key[0] not in ("Event", "FlinkSnapshot", "Lease")]
        assert not left, f"{left}\n{story}"
    scenario.check(world)
