"""Everything together: the clock, the user, Deployments, pods, check pods, jobs."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.api.own_identity import OwnIdentity
from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.api.types import format_time
from penstock_operator.errors import Unavailable
from penstock_operator.process.metrics import Metrics
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.observe.manifests import labels_of, parse_time
from penstock_operator.reconcile.ports import Ports
from penstock_operator.resources.names import INCARNATION, JOB, ROLE
from penstock_operator.settings import Settings
from penstock_operator.snapshot.loop import SnapshotLoop
from tests.unit.operator.world.cluster import FakeCluster
from tests.unit.operator.world.deployments import Deployments
from tests.unit.operator.world.engine import FakeEngineClient, FakeJob
from tests.unit.operator.world.faults import Fault, Killed
from tests.unit.operator.world.images import Image
from tests.unit.operator.world.mishaps import NAME, Mishaps
from tests.unit.operator.world.pods import drops, is_up, running_status, waiting_status
from tests.unit.operator.world.sink import Sink
from tests.unit.operator.world.storage import FakeStorage
from tests.unit.operator.world.watch import Hearing, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.job_loop import Transition
    from penstock_operator.snapshot.loop import SnapshotTransition

MEANT = OwnIdentity(locations=("s3://bucket", "s3://elsewhere"), endpoints=("http://elsewhere:9000",))
"""Jobs need no Secret, where that is not what a test is about."""
START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
FENCED_STAY = 60
"""Seconds that a master that was fenced off answers."""


def flinkjob(name: str = NAME, *, image: str = "job:1", **job: Any) -> Manifest:
    """A FlinkJob as the API server stores it, with parallelism 2."""
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "image": image,
            "job": {"entry": "job.py", "parallelism": 2, "maxParallelism": 128, **job},
            "storage": {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"},
            "configuration": {"execution.checkpointing.interval": "10s"},
        },
    }


def flinksnapshot(name: str, *, job: str = NAME, **spec: Any) -> Manifest:
    """A FlinkSnapshot that takes a savepoint, unless told otherwise."""
    body = spec if "checkpoint" in spec else {"savepoint": {"disposeOnDelete": True}, **spec}
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkSnapshot",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"jobRef": {"name": job}, **body},
    }


class World(Mishaps):
    """One cluster, one store, one clock, one operator that can be killed and started again."""

    def __init__(self, fault: Fault | None = None, settings: Settings | None = None) -> None:
        self.fault = fault or Fault()
        self.time = START
        self.images: dict[str, Image] = {}
        self.cluster = FakeCluster(self.fault, lambda: format_time(self.time))
        self.deployments = Deployments(self.cluster)
        self.storage = FakeStorage(self.fault)
        self.sink = Sink()
        self.jobs: dict[str, FakeJob] = {}
        """By uid of the master's pod."""
        self.standing_by: dict[str, int] = {}
        """By uid of the master's pod: what its command line says of the parallelism since its container was started."""
        self.savepoints: list[str] = []
        self.rescales: list[int] = []
        self.rest_down = False
        self.summaries = True
        """Masters know `/jobs/:id/summary`; those of earlier versions do not."""
        self.polls = 0
        """How often a master was asked how its job is."""
        self.node_capacity = 100
        self.deaths = 0
        self.defects: list[Exception] = []
        """What was raised in passes that nobody foresaw; a test fails by it unless it `has_defects`."""
        self.has_defects = False
        self.crashes = 0
        """How often a master has crashed."""
        self.masters_hang = False
        """A master that was fenced off does not end."""
        self.zombies: set[str] = set()
        """Uids of masters' pods that live on where nobody sees them."""
        self.watch: Callable[[Transition], None] = lambda transition: None
        self.watch_snapshots: Callable[[SnapshotTransition], None] = lambda transition: None
        self.two_masters: list[str] = []
        self.ports = Ports(
            self.cluster,
            lambda namespace, name, token: FakeEngineClient(self, name),
            self.storage,
            settings=settings or Settings(own_identity=MEANT),
            now=self.now,
            monotonic=lambda: (self.time - START).total_seconds(),
        )
        self.controller = Hearing(self.ports, Metrics())
        self.watching = Watch(self)
        self.loops: dict[tuple[str, str], JobLoop | SnapshotLoop] = {}
        self.due: dict[tuple[str, str], tuple[datetime, int]] = {}
        """By kind and name: when the loop wants to look again, and what the watches had told when it last did."""

    def now(self) -> datetime:
        return self.time

    def tell(self, kind: Kind, manifest: Manifest, *, gone: bool = False, listed: bool = False) -> None:
        """What a watch stream says."""
        self.controller.hear(kind, manifest, gone=gone, listed=listed)

    # --- the user ----------------------------------------------------------------------------------------------------

    def apply(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if self.cluster.one(manifest["kind"], name) is None:
            self.cluster.put(manifest)
        else:
            self.cluster.edit(manifest["kind"], "default", name, lambda m: m.update(spec=deepcopy(manifest["spec"])))

    def edit(self, name: str = NAME, **changes: Any) -> None:
        """Change fields of the spec: `image="job:2"`, `job={"parallelism": 4}`."""

        def change(manifest: Manifest) -> None:
            for key, value in changes.items():
                if isinstance(value, dict):
                    manifest["spec"].setdefault(key, {}).update(value)
                else:
                    manifest["spec"][key] = value

        self.cluster.edit("FlinkJob", "default", name, change)

    def secret(self, name: str) -> None:
        """A Secret with keys for storage."""
        data = {"AWS_ACCESS_KEY_ID": b64encode(name.encode()).decode()}
        meta = {"name": name, "namespace": "default"}
        self.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})

    def delete(self, name: str = NAME, *, foreground: bool = False) -> None:
        self.cluster.remove("FlinkJob", "default", name, foreground=foreground)

    def job(self, name: str = NAME) -> Manifest:
        found = self.cluster.one("FlinkJob", name)
        assert found is not None, f"FlinkJob {name} is gone"
        return found

    def status(self, name: str = NAME) -> dict[str, Any]:
        return dict(self.job(name).get("status") or {})

    def condition(self, kind: str, name: str = NAME) -> dict[str, Any]:
        return next((c for c in self.status(name).get("conditions", ()) if c["type"] == kind), {})

    def snapshots(self, **labels: str) -> dict[str, dict[str, Any]]:
        """Status of the FlinkSnapshots, by name."""
        wanted = {f"penstock.dev/{key}": value for key, value in labels.items()}
        found = self.cluster.select("FlinkSnapshot", None, wanted)
        return {m["metadata"]["name"]: m.get("status", {}) for m in found}

    def events(self) -> list[tuple[str, str]]:
        found = [m for (kind, _, _), m in self.cluster.objects.items() if kind == "Event"]
        found.sort(key=lambda m: (m["firstTimestamp"], int(m["metadata"]["resourceVersion"])))
        return [(m["reason"], m["message"]) for m in found]

    # --- time --------------------------------------------------------------------------------------------------------

    async def operate(self, name: str = NAME, kind: str = "FlinkJob") -> None:
        """One pass of the operator; if it is killed, a new one takes its place at the next pass.

        The next one is when the loop asked for it, or when anything in the cluster has changed: by what its controller
        would wake it for, if not for so much.
        """
        loop = self.loops.get((kind, name))
        if loop is None:
            complain = self.defects.append
            job = JobLoop("default", name, self.ports, lambda transition: self.watch(transition), complain)
            snapshot = SnapshotLoop(
                "default", name, self.ports, lambda transition: self.watch_snapshots(transition), complain
            )
            loop = self.loops[kind, name] = job if kind == "FlinkJob" else snapshot
        before, pause = self.watching.heard, timedelta(0)
        try:
            found = await loop.reconcile()
            pause = timedelta(days=1) if found is None else found
        except Killed:
            self.deaths += 1
            self.loops.clear()
            self.due.clear()
        except Exception as error:
            foreseen = isinstance(error, Unavailable) and self.cluster.broken
            if not foreseen and (not self.fault.struck or not self.fault.mode.startswith("fail")):
                raise
        if self.defects and not self.has_defects:
            raise self.defects[0]
        self.due[kind, name] = (self.time + pause, before)

    async def run(self, seconds: float, *, also: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let everything run for a while."""
        end = self.time + timedelta(seconds=seconds)
        while self.time < end:
            await self._turn(also)

    async def until(
        self, reached: Callable[[], bool], *, within: float = 900, also: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Let everything run until something is so."""
        end = self.time + timedelta(seconds=within)
        while not reached():
            assert self.time < end, self.describe()
            await self._turn(also)

    async def _turn(self, also: Callable[[], Awaitable[None]] | None) -> None:
        self.watching.deliver()
        await self.watching.resync()
        for kind in ("FlinkJob", "FlinkSnapshot"):
            for name in [m["metadata"]["name"] for m in self.cluster.select(kind, None, {})]:
                when, version = self.due.get((kind, name), (self.time, 0))
                if self.time >= when or self.watching.heard != version:
                    await self.operate(name, kind)
        if also is not None:
            await also()
        self.tick(1.0)

    def settled(self, name: str = NAME) -> bool:
        """The operator is done: Ready, or Stalled, for the current generation, and nothing is going on."""
        status = self.status(name)
        current = status.get("observedGeneration") == self.job(name)["metadata"]["generation"]
        ready = self.condition("Ready", name).get("status") == "True"
        return current and "operation" not in status and ready

    def stalled(self, name: str = NAME) -> bool:
        status = self.status(name)
        current = status.get("observedGeneration") == self.job(name)["metadata"]["generation"]
        return current and self.condition("Stalled", name).get("status") == "True"

    def describe(self) -> str:
        """What a person needs to see when a test fails."""
        lines = [f"at {self.time:%H:%M:%S}, {self.fault.struck or 'no fault'}"]
        lines += [f"  event {reason}: {message}" for reason, message in self.events()[-12:]]
        for manifest in self.cluster.select("FlinkJob", None, {}):
            lines.append(json.dumps(manifest.get("status", {}), indent=1)[:4000])
        lines += [
            f"  pod {p['metadata']['name']} {p.get('status', {}).get('phase')}"
            for p in self.cluster.select("Pod", None, {})
        ]
        lines += [f"  job {j.job_id} {j.state} at {j.position}" for j in self.jobs.values()]
        lines += [f"  call {c}" for c in self.fault.calls[-10:]]
        return "\n".join(lines)

    def tick(self, seconds: float) -> None:
        """Deployments make pods, pods start and end, jobs process records."""
        self.time += timedelta(seconds=seconds)
        self.cluster.garbage.collect()
        for deployment in self.cluster.select("Deployment", None, {}):
            self.deployments.control(deployment)
        for pod in self.cluster.select("Pod", None, {}):
            self._pod(pod)
        for uid, job in self.jobs.items():
            if self._master_alive(uid):
                job.advance(seconds, self.slots(job.name, job.job_id))
        self._watch_masters()

    # --- pods --------------------------------------------------------------------------------------------------------

    def _pod(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            if not pod.get("x-lost"):
                self.cluster.drop("Pod", meta["namespace"], meta["name"])
                self.jobs.pop(meta["uid"], None)
            return
        container = pod["spec"]["containers"][0]
        image = self.images.get(container["image"], Image())
        role = labels_of(pod).get(ROLE)
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return
        if self._overdue(pod):
            self.end_pod("check", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        elif not image.pulls:
            self._set(pod, waiting_status("ImagePullBackOff", "Back-off pulling image", container["image"]))
        elif image.waits is not None:
            self._set(pod, waiting_status(*image.waits, container["image"]))
        elif pod["status"].get("phase") == "Pending" and (absent := self._absent_secret(container)):
            why = f'secret "{absent}" not found'
            self._set(pod, waiting_status("CreateContainerConfigError", why, container["image"]))
        elif role == "check":
            self._check(pod, image)
        elif role == "worker":
            self._worker(pod)
        else:
            self._master(pod, image)

    def _absent_secret(self, container: dict[str, Any]) -> str:
        """A Secret that the container's environment comes from and that does not exist."""
        named = [source["secretRef"]["name"] for source in container.get("envFrom", ())]
        return next((name for name in named if self.cluster.one("Secret", name) is None), "")

    def _overdue(self, pod: Manifest) -> bool:
        seconds = pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return False
        born = parse_time(pod["metadata"]["creationTimestamp"])
        return born is not None and self.time - born >= timedelta(seconds=seconds)

    def _worker(self, pod: Manifest) -> None:
        running = pod["status"].get("phase") == "Running"
        if not running and self._running_workers() >= self.node_capacity:
            unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}
            self._set(pod, {"phase": "Pending", "conditions": [unschedulable]})
        elif not running or (not is_up(pod) and self.time >= datetime.fromisoformat(pod["status"]["x-up-at"])):
            self._set(pod, running_status(pod, ready=True))

    def _running_workers(self) -> int:
        workers = self.cluster.select("Pod", None, {ROLE: "worker"})
        return sum(p["status"].get("phase") == "Running" for p in workers)

    def _check(self, pod: Manifest, image: Image) -> None:
        if pod["status"].get("phase") == "Pending":
            self._set(pod, running_status(pod, ready=True))
        elif pod["status"].get("phase") == "Running":
            if image.check_hangs:
                return
            report = image.check or {"ok": True, "problems": [], "graph": {}}
            if drops(pod, image):
                problem = {"code": "STATE", "message": f"state of uid {image.without!r} has no operator"}
                report = {"ok": False, "problems": [problem]}
            ok = report["ok"] and not image.check_crashes
            text = "Traceback: KeyError" if image.check_crashes else f"hello from the job\n{json.dumps(report)}\n"
            self.cluster.logs[pod["metadata"]["name"]] = text
            ended = {"terminated": {"exitCode": 0 if ok else 1, "reason": "Completed" if ok else "Error"}}
            own = {"name": MAIN_CONTAINER, "state": ended}
            if len(pod["spec"]["containers"]) > 1:
                beside = [{"name": c["name"], "state": {"running": {}}} for c in pod["spec"]["containers"][1:]]
                self._set(pod, {"phase": "Running", "containerStatuses": [*beside, own]})
                return
            self._set(pod, {"phase": "Succeeded" if ok else "Failed", "containerStatuses": [own]})

    def _master(self, pod: Manifest, image: Image) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.jobs:
            self._leave_when_fenced(pod, self.jobs[uid])
            return
        restarts = pod["status"].get("x-restarts", 0)
        args = pod["spec"]["containers"][0]["args"]
        if (
            "--when-released" in args
            and image.stands_by
            and args[args.index("--job-id") + 1] not in self.storage.released
        ):
            self.standing_by.setdefault(uid, self._parallelism(pod))
            self._set(pod, running_status(pod, ready=False))
            return
        job = self._start_job(pod, image)
        knows_how = image.stands_by or "--when-released" not in args
        if not image.starts or not knows_how or drops(pod, image) or not job.take_over():
            crashed = {"waiting": {"reason": "CrashLoopBackOff"}}
            ended = {"exitCode": 1, "reason": "Error", "message": "the master refuses to start"}
            last = {"terminated": {**ended, "finishedAt": format_time(self.time)}}
            statuses = [
                {
                    "name": MAIN_CONTAINER,
                    "image": pod["spec"]["containers"][0]["image"],
                    "restartCount": restarts + 1,
                    "state": crashed,
                    "lastState": last,
                }
            ]
            self._set(
                pod,
                {"phase": "Running", "podIP": "10.0.0.1", "x-restarts": restarts + 1, "containerStatuses": statuses},
            )
            return
        self.jobs[uid] = job
        self._set(pod, running_status(pod, ready=True))

    def _leave_when_fenced(self, pod: Manifest, job: FakeJob) -> None:
        """It answers SUSPENDED for a minute and ends; its container is started again."""
        if job.suspended < FENCED_STAY or self.masters_hang or pod.get("x-lost"):
            return
        del self.jobs[pod["metadata"]["uid"]]
        restarts = pod["status"].get("x-restarts", 0) + 1
        ended = {"exitCode": 75, "reason": "Error", "message": job.failure, "finishedAt": format_time(self.time)}
        own = {
            "name": MAIN_CONTAINER,
            "restartCount": restarts,
            "state": {"running": {}},
            "lastState": {"terminated": ended},
        }
        self._set(pod, {"phase": "Running", "podIP": "10.0.0.1", "x-restarts": restarts, "containerStatuses": [own]})

    def _start_job(self, pod: Manifest, image: Image) -> FakeJob:
        args = pod["spec"]["containers"][0]["args"]
        restore = next((a for a in args if a in ("--fresh", "--restore-latest")), None)
        if "--when-released" in args:
            restore = self.storage.released.get(args[args.index("--job-id") + 1]) or "--fresh"
        name = labels_of(pod)[JOB]
        return FakeJob(
            world=self,
            name=name,
            job_id=args[args.index("--job-id") + 1],
            image=image,
            restore=restore or args[args.index("--restore") + 1],
            wanted=self.standing_by.pop(pod["metadata"]["uid"], None) or self._parallelism(pod),
        )

    def _parallelism(self, pod: Manifest) -> int:
        """As the master finds it when its container starts: on its command line, or else in its `penstock.yaml`."""
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")
        config = self.cluster.one("ConfigMap", volume["projected"]["sources"][0]["configMap"]["name"])
        assert config is not None, "the pod is there before its ConfigMap"
        container = pod["spec"]["containers"][0]
        if "--parallelism" not in container["args"]:
            return int(yaml.safe_load(config["data"]["penstock.yaml"])["parallelism.default"])
        assert "parallelism.default" not in config["data"]["penstock.yaml"], "two truths"
        source = next(e for e in container["env"] if e["name"] == "PENSTOCK_PARALLELISM")["valueFrom"][
            "configMapKeyRef"
        ]
        variable = self.cluster.one("ConfigMap", source["name"])
        assert variable is not None, "the pod is there before what its environment comes from"
        return int(variable["data"][source["key"]])

    def _master_alive(self, uid: str) -> bool:
        return uid in self.zombies or any(
            p["metadata"]["uid"] == uid for p in self.cluster.select("Pod", None, {ROLE: "master"})
        )

    def leading(self, name: str) -> FakeJob | None:
        """The job that answers at the REST Service."""
        service = self.cluster.one("Service", f"{name}-rest")
        for pod in self.cluster.select("Pod", None, service["spec"]["selector"] if service else {JOB: name}):
            job = self.jobs.get(pod["metadata"]["uid"])
            if job is not None and "deletionTimestamp" not in pod["metadata"] and not pod.get("x-lost"):
                return job
        return None

    def slots(self, name: str, job_id: str) -> int:
        pods = self.cluster.select("Pod", None, {JOB: name, ROLE: "worker", INCARNATION: job_id})
        return sum(is_up(p) and "deletionTimestamp" not in p["metadata"] for p in pods)

    def _watch_masters(self) -> None:
        """Two jobs of one FlinkJob that both process records are the worst that can happen."""
        active: dict[str, list[str]] = {}
        for uid, job in self.jobs.items():
            if job.state == "RUNNING" and self._master_alive(uid):
                active.setdefault(job.name, []).append(job.job_id)
        self.two_masters += [f"{name}: {ids}" for name, ids in active.items() if len(ids) > 1]


__all__ = ["Image", "World", "flinkjob", "flinksnapshot"]
