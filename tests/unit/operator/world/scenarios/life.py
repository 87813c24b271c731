"""Random lives of a FlinkJob: edits, failures, deaths of the operator, deletions and waits, in any order.

A seed determines a life completely, so a failed life can be replayed. No record may be lost or repeated. When the
environment works again, the last edit must take effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.scenarios.scenario import exactly_once, gone, running
from tests.unit.operator.world.world import NAME, World, flinkjob

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operator.world.faults import Mode

IMAGES = {
    "job:1": Image(),
    "job:2": Image(),
    "job:3": Image(),
    "job:crashes": Image(starts=False),
    "job:missing": Image(pulls=False),
    "job:stuck": Image(checkpoints=False),
    "job:refused": Image(check={"ok": False, "problems": [{"code": "GRAPH", "message": "no sink"}]}),
    "job:unsaved": Image(savepoints=False),
    "job:cold": Image(supports_standby=False),
}
LAST = "job:last"
MODES: tuple[Mode, ...] = ("die-before", "die-after", "fail-before", "fail-after")
PATIENCE = 3600.0
"""The time in seconds within which the last edit must take effect."""
PARTS = [
    ("Deployment", f"{NAME}-master"),
    ("Deployment", f"{NAME}-worker"),
    ("Service", f"{NAME}-rest"),
    ("Secret", f"{NAME}-secrets"),
    ("ConfigMap", f"{NAME}-parallelism"),
]


@dataclass
class Life:
    """One life in one world."""

    seed: int
    world: World = field(default_factory=World)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.world.images.update(IMAGES)

    async def live(self) -> None:
        """Run from the first deployment to the last edit.

        Raises:
            AssertionError: with the story, if a record was lost or repeated, or the job is stuck.
        """
        world, rng = self.world, self.rng
        try:
            world.apply(self._manifest())
            await world.run(rng.choice([5, 20, 40, 60]))
            for _ in range(rng.randint(3, 10)):
                self._happen()
                await world.run(rng.choice([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 200]))
                if gone(world):
                    self._note("created again")
                    world.apply(self._manifest())
            await self._end()
        except AssertionError as error:
            raise AssertionError(f"{self}\n{error}") from None

    def __str__(self) -> str:
        return f"life {self.seed}:\n  " + "\n  ".join(self.story)

    async def _end(self) -> None:
        """Repair everything, and check that the last edit takes effect permanently."""
        world = self.world
        self._note("everything works again")
        self._heal()
        if gone(world) or "deletionTimestamp" in world.job()["metadata"]:
            await world.until(lambda: gone(world), within=PATIENCE)
            world.apply(self._manifest())
        world.edit(image=LAST, job={"state": "running", "parallelism": 2})
        await world.until(lambda: running(world, image=LAST, parallelism=2), within=PATIENCE)
        await world.run(60)
        assert running(world, image=LAST, parallelism=2), f"it did not stay so\n{world.describe()}"
        exactly_once(world, may_repeat=True)
        assert not world.sink.repeated, f"{world.sink.repeated}\n{world.describe()}"
        checks = world.cluster.select("Pod", None, {"penstock.dev/role": "check"})
        assert not checks, f"check pods are left: {checks}"

    def _manifest(self) -> dict[str, Any]:
        rng, manifest = self.rng, flinkjob()
        spec = manifest["spec"]
        spec["job"]["startFrom"] = "latest-of-name"
        spec["job"]["upgradeMode"] = rng.choice(["savepoint", "savepoint", "last-state"])
        spec["deletion"] = {"savepoint": rng.random() < 0.5, "timeout": "5m"}
        spec["rollback"] = {"enabled": rng.random() < 0.8, "after": "2m"}
        spec["upgrade"] = {"warmStart": rng.random() < 0.3, "check": rng.random() < 0.7}
        if rng.random() < 0.3:
            spec["snapshots"] = {"periodic": {"interval": "1m"}}
        return manifest

    def _happen(self) -> None:
        name, event = self.rng.choice(EVENTS)
        if self.rng.random() < 0.35:
            self._fault()
        reported = event(self)
        self._note(f"{name}{f': {reported}' if reported else ''}")

    def _note(self, event: str) -> None:
        self.story.append(f"{self.world.time:%H:%M:%S} {event}")

    def _fault(self) -> None:
        """Let the operator die, or let a call fail, at one of its next calls."""
        fault = self.world.fault
        fault.mode, fault.struck = self.rng.choice(MODES), ""
        fault.at = len(fault.calls) + self.rng.randint(1, 12)
        self._note(f"{fault.mode} at call {fault.at}")

    def _heal(self) -> None:
        world = self.world
        world.fault.is_over()
        world.recover_nodes()
        world.node_capacity, world.deployments.quota = 100, None
        world.cluster.denied.clear()
        world.cluster.quotas.clear()
        world.storage.down, world.rest_down = "", False
        world.jump(timedelta(0))
        world.images["job:unsaved"] = Image()
        for job in world.jobs.values():
            job.image = replace(job.image, savepoints=True)

    # --- possible events --------------------------------------------------------------------------------------------

    def image(self) -> str:
        chosen = self.rng.choice(sorted(IMAGES))
        self.world.edit(image=chosen)
        return chosen

    def parallelism(self) -> str:
        chosen = self.rng.randint(1, 4)
        self.world.edit(job={"parallelism": chosen})
        return str(chosen)

    def state(self) -> str:
        chosen = self.rng.choice(["suspended", "running", "running"])
        self.world.edit(job={"state": chosen})
        return chosen

    def nonce(self) -> str:
        chosen = self.rng.choice(["restartNonce", "savepointTriggerNonce", "checkpointTriggerNonce"])
        self.world.edit(job={chosen: self.rng.randint(1, 1000)})
        return chosen

    def wipe(self) -> str:
        """Remove the status while the job runs, so that the operator adopts it."""
        world = self.world
        if not world.settled() or world.status().get("phase") != "Running":
            return "not now"
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m.pop("status"))
        return ""

    def delete(self) -> str:
        self.world.delete(foreground=self.rng.random() < 0.5)
        return ""

    def lose_object(self) -> str:
        kind, name = self.rng.choice(PARTS)
        self.world.cluster.remove(kind, "default", name)
        return f"{kind} {name}"

    def pod_fault(self) -> str:
        world, role = self.world, self.rng.choice(["master", "worker"])
        fault = self.rng.choice(["crash", "kill", "container", "evict", "fail", "node"])
        if not world.reachable(role):
            return f"{fault} {role}: there is none"
        if fault == "crash":
            world.crash_master()
        elif fault == "kill":
            world.kill_pod(role)
        elif fault == "container":
            world.kill_container(role)
        elif fault == "evict":
            world.evict(role)
        elif fault == "node":
            world.lose_node(role)
        else:
            self._fail()
        return f"{fault} {role}"

    def _fail(self) -> None:
        job = self.world.leading(NAME)
        if job is not None and job.state in ("RUNNING", "RESTARTING"):
            job.failure = "ValueError: a record makes the job fail"
            job._end("FAILED")

    def capacity(self) -> str:
        self.world.node_capacity = self.rng.choice([1, 2, 3, 100])
        return str(self.world.node_capacity)

    def quota(self) -> str:
        chosen = self.rng.choice([None, 1, 2])
        self.world.deployments.quota = chosen
        return f"{chosen} pods"

    def count_quota(self) -> str:
        kind = self.rng.choice(["ConfigMap", "Service", "Deployment", "Secret"])
        self.world.cluster.quotas = {kind: len(self.world.cluster.select(kind, None, {}))}
        return kind

    def policy(self) -> str:
        kind = self.rng.choice(["ConfigMap", "Deployment", "Pod", "FlinkSnapshot", "Service"])
        self.world.cluster.denied = {kind: f"{kind} is denied by a policy"}
        return kind

    def storage(self) -> str:
        self.world.storage.down = self.rng.choice(["", "503 SlowDown"])
        return self.world.storage.down or "answers"

    def rest(self) -> str:
        self.world.rest_down = self.rng.random() < 0.5
        return "silent" if self.world.rest_down else "answers"

    def clock(self) -> str:
        """Let the wall clock of the operator's node jump; sometimes a node with that clock takes over."""
        self.world.jump(timedelta(minutes=self.rng.choice([-60, -5, 0, 5, 60])))
        restarted = self.rng.random() < 0.5
        if restarted:
            self.world.restart_operator()
        return f"{self.world.skew}{', the operator is restarted' if restarted else ''}"

    def heal(self) -> str:
        self._heal()
        return ""


EVENTS: list[tuple[str, Callable[[Life], str]]] = [
    *[("image", Life.image)] * 6,
    *[("parallelism", Life.parallelism)] * 3,
    *[("state", Life.state)] * 3,
    *[("nonce", Life.nonce)] * 2,
    ("status wiped", Life.wipe),
    ("deleted", Life.delete),
    *[("object deleted", Life.lose_object)] * 3,
    *[("pod_fault", Life.pod_fault)] * 5,
    ("capacity", Life.capacity),
    ("pod quota", Life.quota),
    ("object quota", Life.count_quota),
    ("policy", Life.policy),
    ("storage", Life.storage),
    ("REST", Life.rest),
    *[("clock", Life.clock)] * 2,
    *[("heals", Life.heal)] * 3,
]
