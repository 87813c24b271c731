"""The flows of a FlinkJob's life.

`test_flows` runs each of them once. `test_crashes` runs each once more for every call of the operator, with the death
of the operator or a failure at that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.first_scenarios import FIRST_SCENARIOS
from tests.unit.operator.world.scenarios.scenario import (
    FOREIGN,
    Scenario,
    at,
    both,
    edit,
    equal,
    gone,
    pods_fit,
    rejected,
    remove,
    running,
    snapshotted,
    spec,
    suspended,
    with_foreign_savepoint,
)
from tests.unit.operator.world.scenarios.warm_scenarios import WARM_SCENARIOS
from tests.unit.operator.world.world import NAME, World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.kube.cluster import Manifest


def _checkpoints(world: World) -> list[str]:
    return [path for path in world.storage.found if path.startswith(world.storage.root)]


def need(parallelism: int) -> Callable[[World], None]:
    """Return an action: the load now needs this parallelism."""

    def change(world: World) -> None:
        world.load = parallelism

    return change


def workers(world: World) -> list[Manifest]:
    return world.cluster.select("Pod", None, {"penstock.dev/role": "worker"})


def autoscaled(first: int, rescales: list[int]) -> Callable[[World], None]:
    """Return a check: the engine made these rescales without a failover, and the spec is unchanged."""

    def check(world: World) -> None:
        pods_fit(world)
        equal(world.rescales, rescales)
        equal(world.job()["spec"]["job"]["parallelism"], first)
        job, stored = world.leading(NAME), world.cluster.one("ConfigMap", f"{NAME}-parallelism")
        equal(job is not None and job.failovers, 0)
        equal(stored is not None and stored["data"], {"parallelism": str(rescales[-1])})

    return check


def _has_one_program(world: World) -> None:
    """Check that the last program is stored once. The ConfigMap of its check is gone."""
    found = [
        m["data"] for m in world.cluster.select("ConfigMap", None, {"penstock.dev/job": NAME}) if "job.py" in m["data"]
    ]
    equal([(data["job.py"], data["requirements.txt"]) for data in found], [("print(2)\n", "pandas==2.3\n")])


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
        "upgrade-of-a-script",
        edit(job={"script": "print(2)\n", "requirements": ["pandas==2.3"]}),
        lambda w: running(w, generation=2),
        manifest=spec(job={"entry": None, "script": "print(1)\n"}),
        savepoints=1,
        check=_has_one_program,
    ),
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
    Scenario("rescale-up", edit(job={"parallelism": 4}), lambda w: running(w, parallelism=4), check=pods_fit),
    Scenario(
        "autoscaled-up",
        need(4),
        lambda w: running(w, parallelism=4),
        manifest=spec(autoscaling={"enabled": True, "max": 8}),
        check=autoscaled(2, [4]),
    ),
    Scenario(
        "autoscaled-down",
        need(1),
        both(lambda w: running(w, parallelism=1), lambda w: len(workers(w)) == 1),
        manifest=spec(autoscaling={"enabled": True, "max": 8}, job={"parallelism": 3}),
        check=autoscaled(3, [1]),
    ),
    Scenario("rescale-down", edit(job={"parallelism": 1}), lambda w: running(w, parallelism=1), check=pods_fit),
    Scenario(
        "rescale-and-upgrade",
        edit(image="job:2", job={"parallelism": 4}),
        lambda w: running(w, image="job:2", parallelism=4),
        savepoints=1,
        check=pods_fit,
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
        check=pods_fit,
    ),
    Scenario(
        "rescale-reverted-in-the-middle",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=2),
        then=((at("AddWorkers"), edit(job={"parallelism": 2})),),
        check=pods_fit,
    ),
    Scenario(
        "rescale-reverted-while-the-engine-is-at-it",
        edit(job={"parallelism": 4}),
        lambda w: running(w, parallelism=2),
        then=((at("Rescale", triggerId=True), edit(job={"parallelism": 2})),),
        check=pods_fit,
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
        check=pods_fit,
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
        check=lambda w: equal(w.status()["running"]["restoredFrom"]["kind"], "Checkpoint"),
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
        check=lambda w: equal(w.status()["running"]["restoredFrom"]["path"], FOREIGN),
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
        check=lambda w: equal(w.status()["running"]["restoredFrom"]["path"], FOREIGN),
    ),
    Scenario(
        "redeploy-of-an-image-that-crashes",
        edit(image="job:bad", job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
        lambda w: rejected(w) and w.status()["phase"] == "Running" and w.status()["running"]["image"] == "job:1",
        prepare=with_foreign_savepoint,
        images={"job:bad": Image(starts=False)},
        exact=False,
        check=lambda w: equal(w.status()["running"]["restoredFrom"]["kind"], "Checkpoint"),
    ),
    Scenario(
        "redeploy-of-nothing",
        edit(job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1}),
        lambda w: rejected(w) and w.status()["running"]["image"] == "job:1",
        check=lambda w: equal(w.leading(NAME).state if w.leading(NAME) else None, "RUNNING"),
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
        savepoints=1,
    ),
    Scenario("delete", lambda w: w.delete(), gone),
    Scenario(
        "delete-with-savepoint", lambda w: w.delete(), gone, manifest=spec(deletion={"savepoint": True}), savepoints=1
    ),
    Scenario(
        "delete-in-the-foreground-with-savepoint",
        lambda w: w.delete(foreground=True),
        gone,
        manifest=spec(deletion={"savepoint": True}),
        savepoints=1,
        check=lambda w: equal(len(w.savepoints), 1),
    ),
    Scenario(
        "delete-in-the-foreground-with-storage",
        lambda w: w.delete(foreground=True),
        gone,
        manifest=spec(deletion={"storage": "Delete"}),
        check=lambda w: equal(_checkpoints(w), []),
    ),
    Scenario(
        "delete-with-storage",
        lambda w: w.delete(),
        gone,
        manifest=spec(deletion={"storage": "Delete"}),
        check=lambda w: equal(_checkpoints(w), []),
    ),
    Scenario(
        "delete-while-suspended",
        edit(job={"state": "suspended"}),
        gone,
        then=((suspended, lambda w: w.delete()),),
        savepoints=1,
        check=lambda w: equal(bool(_checkpoints(w)), True),
    ),
    Scenario(
        "delete-with-storage-while-suspended",
        edit(job={"state": "suspended"}),
        gone,
        manifest=spec(deletion={"storage": "Delete"}),
        then=((suspended, lambda w: w.delete()),),
        savepoints=1,
        check=lambda w: (equal(_checkpoints(w), []), equal([p in w.storage.found for p in w.savepoints], [True])),
    ),
    Scenario(
        "delete-with-storage-while-suspended-and-invalid",
        edit(job={"state": "suspended"}),
        gone,
        manifest=spec(deletion={"storage": "Delete"}),
        then=(
            (suspended, edit(configuration={"rest.port": 1})),
            (lambda w: w.stalled(), lambda w: w.delete()),
        ),
        savepoints=1,
        check=lambda w: equal(_checkpoints(w), []),
    ),
    Scenario(
        "delete-and-apply-again-from-the-latest",
        lambda w: w.delete(),
        lambda w: not gone(w) and running(w) and len(w.sink.restores) > 0,
        then=((gone, lambda w: w.apply(spec(job={"startFrom": "latest-of-name"}))),),
    ),
    Scenario(
        "finish",
        lambda w: None,
        lambda w: w.settled() and w.status()["phase"] == "Finished",
        images={"job:1": Image(ends_at=400)},
    ),
    *FIRST_SCENARIOS,
    *WARM_SCENARIOS,
]
