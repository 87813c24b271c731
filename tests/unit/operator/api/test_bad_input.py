"""Invalid edits: `Stalled` names the error and its place, the old job keeps running, and a corrected edit is enough."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import FOREIGN, edit, rejected, running, spec, with_foreign_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = Image(check={"ok": False, "problems": [{"code": "USER_CODE", "message": "ModuleNotFoundError: job"}]})
NO_STATE = Image(
    check={
        "ok": False,
        "problems": [
            {
                "code": "RESTORE_REFUSED",
                "message": "uid 'dedup' has no operator",
                "remedy": "allow_non_restored_state=['dedup']",
            }
        ],
    }
)
READ_ONLY = Image(
    check={
        "ok": False,
        "problems": [
            {
                "code": "STORAGE",
                "message": "execution.checkpointing.savepoint-dir = s3://b cannot be written: 403",
                "remedy": "Grant",
            }
        ],
    }
)
NO_SECRET = Image(waits=("CreateContainerConfigError", 'secret "s3" not found'))


@dataclass(frozen=True)
class Bad:
    """An invalid edit, the setup that makes it invalid, and the message of `Stalled`."""

    name: str
    reason: str
    words: str
    edit: Callable[[World], None] = lambda world: world.edit(image="job:bad")
    image: Image = field(default_factory=Image)
    prepare: Callable[[World], None] = lambda world: None


def redeploy(world: World) -> None:
    world.edit(job={"initialSavepointPath": FOREIGN, "savepointRedeployNonce": 1})


def torn(world: World) -> None:
    with_foreign_savepoint(world)
    world.storage.torn.add(FOREIGN)


def template(**pod: Any) -> Callable[[World], None]:
    return edit(podTemplate={"spec": pod})


MAIN = {"name": "penstock", "securityContext": {"privileged": True}}
TABLE = (
    Bad("module", "CheckFailed", "ModuleNotFoundError: job", image=REFUSED),
    Bad("graph", "CheckFailed", "uid 'dedup' has no operator. spec.job.allowNonRestoredState: ['dedup']", image=NO_STATE),
    Bad("image", "ImagePullFailed", "job:bad cannot be pulled", image=Image(pulls=False)),
    Bad("secret", "ContainerConfigError", 'secret "s3" not found', image=NO_SECRET),
    Bad("storage", "StorageUnavailable", "spec.storage.savepoints: s3://b cannot be written: 403. Grant. Correct spec.storage", image=READ_ONLY),
    Bad("savepoint-missing", "SavepointInvalid", f"{FOREIGN} cannot be restored from: no object is at that path", redeploy),
    Bad("savepoint-torn", "SavepointInvalid", f"{FOREIGN} cannot be restored from: files are missing", redeploy, prepare=torn),
    Bad(
        "savepoint-of-another-job",
        "CheckFailed",
        "spec.job.initialSavepointPath: uid 'dedup' has no operator",
        lambda w: (w.images.update({"job:1": NO_STATE}), redeploy(w))[-1],
        prepare=with_foreign_savepoint,
    ),
    Bad("savepoint-cannot-be-made", "SavepointFailed", "AccessDenied", edit(image="job:2"), prepare=lambda w: w.images.update({"job:1": Image(savepoints=False)})),
    Bad("host-path", "InvalidSpec", "spec.podTemplate.spec.volumes[0].hostPath", template(volumes=[{"name": "a", "hostPath": {"path": "/"}}])),
    Bad("privileged", "InvalidSpec", "securityContext.privileged", template(containers=[MAIN])),
    Bad("account", "InvalidSpec", "spec.podTemplate.spec.serviceAccountName", template(serviceAccountName="admin")),
    Bad("containers-no-list", "InvalidSpec", "spec.podTemplate.spec.containers: it must be a list of objects, not an object", template(containers={"name": "x"})),
    Bad("pod-no-object", "InvalidSpec", "spec.worker.podTemplate.spec: it must be an object, not a list", edit(worker={"podTemplate": {"spec": []}})),
    Bad("label-no-string", "InvalidSpec", "spec.podTemplate.metadata.labels.team: it must be a string, not a number. Put it in quotes", edit(podTemplate={"metadata": {"labels": {"team": 7}}})),
    Bad("parallelism", "InvalidSpec", "spec.job.parallelism: 200 is more than maxParallelism 128", edit(job={"parallelism": 200})),
    Bad("standbys", "InvalidSpec", "spec.master.replicas: Input should be less than or equal to 2", edit(master={"replicas": 3})),
    Bad("owned-key", "InvalidSpec", "spec.storage.checkpoints", edit(configuration={"execution.checkpointing.dir": "s3://x"})),
    Bad("autoscaler-key", "InvalidSpec", "spec.autoscaling.enabled", edit(configuration={"job.autoscaler.enabled": True})),
    Bad("autoscaler-max", "InvalidSpec", "spec.autoscaling.max: 200 is more than job.maxParallelism 128", edit(autoscaling={"max": 200})),
    Bad("autoscaler-min", "InvalidSpec", "spec.autoscaling.min: 9 is more than the maximum 8", edit(autoscaling={"min": 9, "max": 8})),
    Bad("autoscaler-memory-max", "InvalidSpec", "spec.autoscaling.memory.max: mode apply needs a maximum", edit(autoscaling={"enabled": True, "memory": {"mode": "apply"}}, worker={"resources": {"limits": {"memory": "1Gi"}}})),
    Bad("autoscaler-memory-small", "InvalidSpec", "512Mi is less than the minimum 1Gi", edit(autoscaling={"enabled": True, "memory": {"mode": "apply", "max": "512Mi"}}, worker={"resources": {"limits": {"memory": "1Gi"}}})),
    Bad("autoscaler-memory-bytes", "InvalidSpec", "spec.autoscaling.memory.max: 1000 is too little memory for a worker", edit(autoscaling={"enabled": True, "memory": {"mode": "apply", "min": 1000, "max": 1000}}, worker={"resources": {"limits": {"memory": "1Gi"}}})),
    Bad("autoscaler-memory-text", "InvalidSpec", "'much' is not a number of bytes", edit(autoscaling={"enabled": True, "memory": {"mode": "apply", "max": "much"}})),
    Bad("autoscaler-memory-off", "InvalidSpec", "spec.autoscaling.memory.mode: the autoscaler that measures the memory is off", edit(autoscaling={"memory": {"mode": "apply", "max": "2Gi"}}, worker={"resources": {"limits": {"memory": "1Gi"}}})),
    Bad("autoscaler-memory-unlimited", "InvalidSpec", "the workers have no memory limit that could be changed", edit(autoscaling={"enabled": True, "memory": {"mode": "apply", "max": "2Gi"}})),
    Bad("autoscaler-window", "InvalidSpec", "spec.autoscaling.window: 5s is too short", edit(autoscaling={"window": "5s"})),
    Bad("credentials", "InvalidSpec", "spec.storage.secretName", edit(configuration={"s3.secret-key": "x"})),
)  # fmt: skip


@pytest.mark.parametrize("bad", TABLE, ids=lambda b: b.name)
def test_a_bad_edit_is_explained_and_the_job_keeps_running(bad: Bad) -> None:
    async def scenario(world: World) -> None:
        bad.prepare(world)
        world.sink.ends.clear()
        world.images["job:bad"] = bad.image
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        bad.edit(world)
        await world.until(lambda: world.stalled())
        messages = set()
        for _ in range(60):
            found = world.condition("Stalled")
            assert (found["reason"], found["status"]) == (bad.reason, "True"), world.describe()
            messages.add(found["message"])
            assert world.condition("Ready")["status"] == "False"
            assert world.condition("Running")["status"] == "True"
            assert world.status()["jobId"] == before
            await world.run(2)
        assert any(bad.words in message for message in messages), messages
        reported = [reason for reason, _ in world.events()]
        assert reported.count(bad.reason) <= 4, "no flood"
        assert not world.savepoints
        world.images.update({"job:1": Image(), "job:bad": Image()})
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m.update(spec=spec()["spec"]))
        await world.until(lambda: running(world))
        assert world.status()["jobId"] == before, "taking it back costs nothing"
        assert not world.sink.lost
        assert not world.sink.repeated

    asyncio.run(scenario(World()))


def test_repaired_storage_needs_no_other_action() -> None:
    async def scenario(world: World) -> None:
        world.images["job:2"] = READ_ONLY
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(image="job:2")
        await world.until(lambda: world.stalled())
        world.images["job:2"] = Image()
        await world.until(lambda: running(world, image="job:2"))

    asyncio.run(scenario(World()))


SECRET_MISSING = "the Secret s3 does not exist"
NAMED_BY = "Create the Secret, or correct the field that names it: spec.storage.secretName"
LATE = 700
"""A time in seconds after the deadline of a check pod."""


def exactly_once(world: World) -> None:
    assert not world.sink.lost, world.describe()
    assert not world.sink.repeated, world.describe()
    assert len(world.sink.empty_starts) <= 1, world.describe()


@pytest.mark.parametrize("mode", ["savepoint", "last-state"])
def test_state_is_kept_until_a_person_allows_to_drop_it(mode: str) -> None:
    async def scenario(world: World) -> None:
        world.images["job:2"] = Image(without="dedup")
        world.apply(flinkjob(upgradeMode=mode))
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        world.edit(image="job:2")
        await world.until(lambda: rejected(world))
        assert world.condition("Stalled")["reason"] == "CheckFailed"
        assert "state of uid 'dedup' has no operator" in world.condition("Stalled")["message"]
        await world.run(60)
        assert world.status()["jobId"] == before
        assert world.condition("Running")["status"] == "True"
        assert not world.savepoints
        world.edit(job={"allowNonRestoredState": ["other"]})
        await world.until(lambda: rejected(world) and world.status()["rejected"]["generation"] == 3)
        world.edit(job={"allowNonRestoredState": ["other", "dedup"]})
        await world.until(lambda: running(world, image="job:2"))
        assert world.sink.restores == [world.status()["running"]["restoredFrom"]["path"]]
        assert before in world.sink.restores[0] or world.sink.restores == world.savepoints
        pods = [p["metadata"]["name"] for p in world.cluster.select("Pod", None, {})]
        world.edit(job={"allowNonRestoredState": []})
        await world.run(60)
        assert running(world, image="job:2")
        assert [p["metadata"]["name"] for p in world.cluster.select("Pod", None, {})] == pods, "nothing is restarted"
        exactly_once(world)

    asyncio.run(scenario(World()))


def test_state_that_may_be_dropped_does_not_reject_a_revision() -> None:
    async def scenario(world: World) -> None:
        world.images["job:2"] = Image(without="dedup")
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(image="job:2", job={"upgradeMode": "stateless"})
        await world.until(lambda: running(world, image="job:2"))
        assert world.status()["running"]["restoredFrom"]["kind"] == "Fresh"

    asyncio.run(scenario(World()))


def waits_for_the_secret(world: World) -> bool:
    found = world.condition("Stalled")
    return found["reason"] == "SecretMissing" and SECRET_MISSING in found["message"] and NAMED_BY in found["message"]


@pytest.mark.parametrize("pause", [20, LATE])
@pytest.mark.parametrize("check", [True, False])
def test_a_first_deployment_waits_for_a_missing_secret_without_pods(pause: float, check: bool) -> None:
    async def scenario(world: World) -> None:
        world.apply(spec(storage={"secretName": "s3"}, upgrade={"check": check}))
        await world.until(lambda: world.stalled())
        assert waits_for_the_secret(world), world.describe()
        await world.run(pause)
        assert waits_for_the_secret(world), world.describe()
        assert not world.cluster.select("Pod", None, {})
        world.secret("s3")
        await world.until(lambda: running(world))
        exactly_once(world)

    asyncio.run(scenario(World()))


@pytest.mark.parametrize("pause", [20, LATE])
@pytest.mark.parametrize("check", [True, False])
def test_an_edit_waits_for_a_missing_secret_and_keeps_the_job(pause: float, check: bool) -> None:
    async def scenario(world: World) -> None:
        world.apply(spec(upgrade={"check": check}))
        await world.until(lambda: running(world))
        before = world.status()["jobId"]
        world.edit(storage={"secretName": "s3"})
        await world.until(lambda: world.stalled())
        await world.run(pause)
        assert waits_for_the_secret(world), world.describe()
        assert world.status()["jobId"] == before
        assert world.condition("Running")["status"] == "True"
        world.secret("s3")
        await world.until(lambda: running(world, generation=2))
        assert len(world.savepoints) == 1
        exactly_once(world)

    asyncio.run(scenario(World()))
