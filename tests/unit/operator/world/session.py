"""FlinkClusters in the simulation, and the REST API of their sessions."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Any

from penstock_operator.engine.account import Checkpoints, Progress
from penstock_operator.engine.client import JobOverview, JobView, SessionOverview
from penstock_operator.errors import EngineError, EngineUnreachable, ProgramRefused
from penstock_operator.reconcile.observation import TERMINAL
from penstock_operator.resources.names import CLUSTER_REVISION, ROLE
from tests.unit.operator.world.engine import FakeEngineClient, FakeJob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.pods import is_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.world import World

CLUSTER_NAME, NAME = "shared", "weather"


def flinkcluster(name: str = CLUSTER_NAME, *, image: str = "engine:1", **spec: Any) -> Manifest:
    """Return a FlinkCluster with two workers of two slots."""
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "image": image,
            "storage": {"checkpoints": "s3://bucket/checkpoints", "savepoints": "s3://bucket/savepoints"},
            "worker": {"replicas": 2, "slots": 2},
            **spec,
        },
    }


def session_job(name: str = NAME, script: str = "job v1", *, cluster: str = CLUSTER_NAME, **job: Any) -> Manifest:
    """Return a FlinkJob that the FlinkCluster runs, with parallelism 1."""
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "cluster": cluster,
            "job": {"script": script, "parallelism": 1, "maxParallelism": 128, **job},
            "configuration": {"execution.checkpointing.interval": "10s"},
        },
    }


def cluster_status(world: World, name: str = CLUSTER_NAME) -> dict[str, Any]:
    found = world.cluster.one("FlinkCluster", name)
    return dict((found or {}).get("status") or {})


def cluster_is_ready(world: World, name: str = CLUSTER_NAME) -> bool:
    found = world.cluster.one("FlinkCluster", name) or {"metadata": {}}
    status = cluster_status(world, name)
    current = status.get("observedGeneration") == found["metadata"].get("generation")
    return current and status.get("phase") == "Ready"


def pods_of(world: World, revision: str, role: str) -> list[Manifest]:
    found = world.cluster.select("Pod", None, {CLUSTER_REVISION: revision, ROLE: role})
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


class FakeSessionClient(FakeEngineClient):
    """The REST Service of one revision of a FlinkCluster."""

    def _programs(self) -> dict[str, FakeJob]:
        if self.world.rest_down or not any(is_up(pod) for pod in pods_of(self.world, self.name, "master")):
            raise EngineUnreachable("nobody answers")
        return self.world.sessions.setdefault(self.name, {})

    def _job(self, job_id: str = "") -> FakeJob:
        job = self._programs().get(job_id)
        if job is None:
            raise EngineError(f"no job {job_id}", status=404)
        return job

    async def overview(self, job_id: str) -> JobOverview | None:
        if job_id in self.world.starting:
            return JobOverview(JobView(job_id, "INITIALIZING"), Checkpoints(), Progress())
        return await super().overview(job_id) if job_id in self._programs() else None

    async def jobs(self) -> list[JobView]:
        return [JobView(job.job_id, job.state) for job in self._programs().values()]

    async def session(self) -> SessionOverview:
        jobs = self._programs().values()
        slots = session_slots(self.world, self.name)
        used = sum(job.wanted for job in jobs if job.state in ("RUNNING", "RESTARTING", "CREATED"))
        return SessionOverview(len(pods_of(self.world, self.name, "worker")), slots, max(slots - used, 0))

    async def slots(self) -> int:
        return session_slots(self.world, self.name)

    async def busy_workers(self) -> frozenset[str]:
        """Return the workers that run a part of a job. The jobs use the slots of the first workers."""
        found = await self.session()
        names = sorted(pod["metadata"]["name"] for pod in pods_of(self.world, self.name, "worker") if is_up(pod))
        return frozenset(names[: -(-(found.slots - found.free_slots) // 2)])

    async def upload(self, name: str, content: bytes) -> str:
        self._programs()
        self.world.fault.before(f"rest upload {name}")
        digest = hashlib.sha256(content).hexdigest()
        self.world.uploads[f"{digest}_{name}"] = content
        self.world.fault.after(f"rest upload {name}")
        return f"{digest}_{name}"

    async def fetch(self, request: Mapping[str, Any]) -> str:
        """Store a program with the text of `world.served`."""
        self._programs()
        self.world.fault.before("rest fetch")
        self.world.fetched.append(dict(request))
        if request["url"] not in self.world.served:
            raise ProgramRefused(f"{request['url']} returned 404", status=400)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("job.py", self.world.served[request["url"]])
        return await self.upload(f"{request['name']}.zip", packed.getvalue())

    async def run(self, program: str, start: Mapping[str, Any]) -> None:
        programs = self._programs()
        self.world.fault.before(f"rest run {program}")
        self.world.submitted.append(dict(start))
        job_id, content = start["jobId"], self.world.uploads[program]
        known = programs.get(job_id)
        if known is not None and known.state not in TERMINAL:
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = archive.read("job.py").decode()
        image = self.world.images.get(text, Image())
        if not image.starts:
            raise ProgramRefused("the program raises ValueError", status=400)
        name = program.partition("_")[2].removesuffix(".zip")
        restore = start.get("savepointPath") or "--fresh"
        job = FakeJob(self.world, name, job_id, image, restore, start["parallelism"])
        assert start["flinkConfiguration"]["execution.checkpointing.dir"] == "s3://bucket/checkpoints"
        if not job.take_over():
            raise ProgramRefused(f"no snapshot at {restore}", status=400)
        programs[job_id] = job
        self.world.fault.after(f"rest run {program}")

    async def cancel(self, job_id: str) -> None:
        self.world.fault.before(f"rest cancel {job_id}")
        if job_id in self.world.starting:
            self.world.starting.discard(job_id)
        else:
            self._job(job_id).state = "CANCELED"
        self.world.fault.after(f"rest cancel {job_id}")


def advance_sessions(world: World, seconds: float) -> None:
    """Let time pass for the jobs of all sessions whose masters are up. A restarted master runs its programs again."""
    for name, jobs in world.sessions.items():
        is_up_now = any(is_up(pod) for pod in pods_of(world, name, "master"))
        for job_id, job in list(jobs.items()):
            if not is_up_now:
                world.interrupted.add(job_id)
            elif job_id in world.interrupted:
                world.interrupted.discard(job_id)
                if job.state not in TERMINAL:
                    jobs[job_id] = again = FakeJob(world, job.name, job_id, job.image, job.restore, job.wanted)
                    again.take_over()
            elif job.state not in TERMINAL:
                job.advance(seconds, slots_for(world, job_id))


def slots_for(world: World, job_id: str) -> list[str]:
    """Return the names of the slots that a job may use. Other jobs have the other slots."""
    name, jobs = next((name, jobs) for name, jobs in world.sessions.items() if job_id in jobs)
    others = (j for j in jobs.values() if j.job_id != job_id and j.state in ("RUNNING", "RESTARTING"))
    free = session_slots(world, name) - sum(other.wanted for other in others)
    return [f"{job_id[:6]}-{n}" for n in range(free)]


def live_jobs(world: World) -> list[FakeJob]:
    """Return the jobs of the sessions whose masters run."""
    found = [(name, jobs) for name, jobs in world.sessions.items() if pods_of(world, name, "master")]
    return [job for _, jobs in found for job in jobs.values()]


def session_slots(world: World, revision: str) -> int:
    return 2 * sum(is_up(pod) for pod in pods_of(world, revision, "worker"))
