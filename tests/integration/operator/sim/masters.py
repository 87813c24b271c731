"""Masters: one small job per master pod, with real checkpoints, behind Flink's REST API."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from aiohttp import web

from penstock.checkpoint.files.manifest import Manifest as SnapshotManifest
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import write_savepoint
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import PenstockError
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.resources.names import INCARNATION, JOB, ROLE

if TYPE_CHECKING:
    from penstock.checkpoint.recovery.takeover import Recovery
    from penstock_operator.kube.cluster import Manifest

RATE = 1000
"""Records per second."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of an image's jobs. The default one works."""

    pulls: bool = True
    check: dict[str, Any] | None = None
    starts: bool = True
    checkpoints: bool = True
    savepoint_seconds: float = 0.5


@dataclass
class Job:
    """One incarnation in one master's pod."""

    name: str
    job_id: str
    parallelism: int
    behaviour: Behaviour
    storage: CheckpointStorage
    recovery: Recovery
    state: str = "CREATED"
    position: float = 0.0
    checkpoint_id: int = 0
    completed: list[tuple[int, str, int]] = field(default_factory=list)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    ran_until: float = field(default_factory=time.monotonic)

    def catch_up(self) -> None:
        """Process the records that have arrived since the last call."""
        now = time.monotonic()
        if self.state == "RUNNING":
            self.position += (now - self.ran_until) * RATE
        self.ran_until = now

    def manifest(self, kind: str = "checkpoint") -> SnapshotManifest:
        now = int(time.time() * 1000)
        return SnapshotManifest(
            format_version=1,
            kind=kind,  # type: ignore[arg-type]
            job_id=self.job_id,
            job_name=self.name,
            checkpoint_id=self.checkpoint_id,
            leader_epoch=self.recovery.epoch,
            trigger_timestamp=now,
            complete_timestamp=now,
            parallelism=self.parallelism,
            max_parallelism=128,
            graph_fingerprint="sim",
            operators=[],
            sources={},
            states={},
            commits={"sink": [int(self.position)]},
        )


class Masters:
    """All masters, their REST API, and the outputs of their jobs."""

    def __init__(self) -> None:
        self.images: dict[str, Behaviour] = {}
        self.jobs: dict[str, Job] = {}
        """The jobs by the uid of the master's pod."""
        self.workers: dict[str, tuple[str, str]] = {}
        """Uid of a worker's pod → (namespace/name, job id)."""
        self.outputs: dict[str, list[tuple[int, int, str]]] = {}
        """namespace/name → committed ranges of records, with the incarnation."""
        self.savepoints: list[str] = []
        self.interval = 1.0
        self.tick = 0.05
        self.configs: dict[str, str] = {}

    def behaviour(self, image: str) -> Behaviour:
        return self.images.get(image, Behaviour())

    def start(self, pod: Manifest) -> bool:
        """Start the job of a master's pod like the engine. Return False if it refuses."""
        uid = pod["metadata"]["uid"]
        if uid in self.jobs:
            return True
        container = pod["spec"]["containers"][0]
        args, behaviour = container["args"], self.behaviour(container["image"])
        name = f"{pod['metadata']['namespace']}/{labels_of(pod)[JOB]}"
        if not behaviour.starts:
            return False
        keys = yaml.safe_load(self.configs[name])
        job_id = args[args.index("--job-id") + 1]
        path = args[args.index("--restore") + 1] if "--restore" in args else None
        storage = CheckpointStorage(keys["execution.checkpointing.dir"], job_id)
        try:
            recovery = take_over(storage, name=uid, restore_path=path)
            if recovery.snapshot is None and "--fresh" not in args:
                return False
            recovery.begin()
        except PenstockError:
            return False
        job = Job(name, job_id, keys["parallelism.default"], behaviour, storage, recovery)
        if recovery.snapshot is not None:
            job.position = float(recovery.snapshot.manifest.commits["sink"][0])
        job.checkpoint_id = recovery.base.first_checkpoint_id - 1
        self.jobs[uid] = job
        threading.Thread(target=self._live, args=(uid, job), daemon=True).start()
        return True

    def stop(self, uid: str) -> None:
        self.jobs.pop(uid, None)
        self.workers.pop(uid, None)

    def add_worker(self, pod: Manifest) -> None:
        name = f"{pod['metadata']['namespace']}/{labels_of(pod)[JOB]}"
        if labels_of(pod)[ROLE] == "worker":
            self.workers[pod["metadata"]["uid"]] = (name, labels_of(pod)[INCARNATION])

    def slots(self, job: Job) -> int:
        return sum(owner == (job.name, job.job_id) for owner in list(self.workers.values()))

    def leading(self, name: str) -> Job | None:
        return next((j for j in list(self.jobs.values()) if j.name == name), None)

    def _live(self, uid: str, job: Job) -> None:
        last = time.monotonic()
        while self.jobs.get(uid) is job:
            time.sleep(self.tick)
            with job.lock:
                if job.state == "CREATED" and self.slots(job) >= job.parallelism:
                    job.state, job.ran_until = "RUNNING", time.monotonic()
                job.catch_up()
                due = time.monotonic() - last >= self.interval
                if job.state == "RUNNING" and due and job.behaviour.checkpoints and self.jobs.get(uid) is job:
                    self.checkpoint(job)
                    last = time.monotonic()

    def checkpoint(self, job: Job) -> SnapshotManifest | None:
        job.checkpoint_id += 1
        manifest = job.manifest()
        try:
            job.recovery.leadership.publish(manifest)
        except PenstockError:
            job.state = "SUSPENDED"
            return None
        path = job.storage.url_of(f"chk-{job.checkpoint_id}")
        start = job.completed[-1][2] if job.completed else self._restored(job)
        self.outputs.setdefault(job.name, []).append((start, int(job.position), job.job_id))
        job.completed.append((job.checkpoint_id, path, int(job.position)))
        for old_id, _, _ in job.completed[:-3]:
            job.storage.delete(f"chk-{old_id}/_metadata")
        return manifest

    @staticmethod
    def _restored(job: Job) -> int:
        return int(job.recovery.snapshot.manifest.commits["sink"][0]) if job.recovery.snapshot else 0

    def gaps(self, name: str) -> list[str]:
        """Return the lost or repeated records in the committed output of a FlinkJob."""
        found, at = [], 0
        for start, end, job_id in self.outputs.get(name, []):
            if start != at:
                found.append(f"{'lost' if start > at else 'repeated'}: {at} … {start} by {job_id}")
            at = end
        return found

    # --- REST --------------------------------------------------------------------------------------------------------

    def app(self) -> web.Application:
        app = web.Application()
        base = "/{namespace}/{name}"
        app.add_routes(
            [
                web.get(f"{base}/overview", self._overview),
                web.get(f"{base}/taskmanagers", self._taskmanagers),
                web.get(f"{base}/jobs/overview", self._jobs),
                web.get(f"{base}/jobs/{{job}}/config", self._config),
                web.get(f"{base}/jobs/{{job}}/checkpoints", self._checkpoints),
                web.get(f"{base}/jobs/{{job}}/exceptions", self._exceptions),
                web.get(f"{base}/jobs/{{job}}/progress", self._progress),
                web.get(f"{base}/jobs/{{job}}/summary", self._summary),
                web.post(f"{base}/jobs/{{job}}/stop", self._stop),
                web.post(f"{base}/jobs/{{job}}/savepoints", self._savepoint),
                web.post(f"{base}/jobs/{{job}}/checkpoints", self._trigger),
                web.patch(f"{base}/jobs/{{job}}/rescaling", self._rescale),
                web.get(f"{base}/jobs/{{job}}/{{kind:savepoints|checkpoints|rescaling}}/{{request}}", self._request),
            ]
        )
        return app

    def _job(self, request: web.Request) -> Job:
        job = self.leading(f"{request.match_info['namespace']}/{request.match_info['name']}")
        if job is None:
            raise web.HTTPServiceUnavailable
        wanted = request.match_info.get("job")
        if wanted not in (None, job.job_id):
            raise web.HTTPNotFound
        return job

    async def _overview(self, request: web.Request) -> web.Response:
        return web.json_response({"slots-total": self.slots(self._job(request)), "slots-available": 0})

    async def _taskmanagers(self, request: web.Request) -> web.Response:
        self._job(request)
        return web.json_response({"taskmanagers": []})

    async def _jobs(self, request: web.Request) -> web.Response:
        job = self._job(request)
        return web.json_response({"jobs": [{"jid": job.job_id, "name": job.name, "state": job.state}]})

    async def _config(self, request: web.Request) -> web.Response:
        job = self._job(request)
        return web.json_response({"jid": job.job_id, "execution-config": {"job-parallelism": job.parallelism}})

    async def _checkpoints(self, request: web.Request) -> web.Response:
        job = self._job(request)
        newest = job.completed[-1] if job.completed else None
        completed = (
            {"id": newest[0], "external_path": newest[1], "latest_ack_timestamp": int(time.time() * 1000)}
            if newest
            else None
        )
        counts = {"completed": len(job.completed), "failed": 0, "restored": int(job.recovery.snapshot is not None)}
        return web.json_response({"counts": counts, "latest": {"completed": completed}})

    async def _progress(self, request: web.Request) -> web.Response:
        self._job(request)
        return web.json_response({"restarts": 0})

    async def _summary(self, request: web.Request) -> web.Response:
        job = self._job(request)
        newest = job.completed[-1] if job.completed else None
        last = (
            {"id": newest[0], "external-path": newest[1], "time": int(time.time() * 1000)}
            if newest is not None
            else None
        )
        points = {"completed": len(job.completed), "failed": 0, "restored": int(job.recovery.snapshot is not None)}
        state = {"jid": job.job_id, "state": job.state, "parallelism": job.parallelism, "restarts": 0}
        return web.json_response({**state, "checkpoints": {**points, "last": last}, "exception": ""})

    async def _exceptions(self, request: web.Request) -> web.Response:
        self._job(request)
        return web.json_response({"root-exception": ""})

    async def _stop(self, request: web.Request) -> web.Response:
        body = await request.json()
        return self._begin(request, body["triggerId"], body["targetDirectory"], end=True)

    async def _savepoint(self, request: web.Request) -> web.Response:
        body = await request.json()
        return self._begin(request, body["triggerId"], body["target-directory"], end=False)

    def _begin(self, request: web.Request, trigger: str, directory: str, *, end: bool) -> web.Response:
        job = self._job(request)
        with job.lock:
            if trigger not in job.requests:
                if job.state != "RUNNING":
                    return web.json_response({"errors": [f"the job is {job.state}"]}, status=409)
                job.requests[trigger] = {"status": {"id": "IN_PROGRESS"}}
                threading.Thread(target=self._write, args=(job, trigger, directory, end), daemon=True).start()
        return web.json_response({"request-id": trigger}, status=202)

    def _write(self, job: Job, trigger: str, directory: str, end: bool) -> None:
        time.sleep(job.behaviour.savepoint_seconds)
        if self.leading(job.name) is not job:
            return
        with job.lock:
            job.catch_up()
            if end:
                job.state = "FINISHED"
            manifest = self.checkpoint(job)
            if manifest is None:
                return
            copy = msgspec.structs.replace(manifest, kind="savepoint")
            path = write_savepoint(copy, job.storage.url, directory, Stores({}))
            self.savepoints.append(path)
            job.requests[trigger] = {"status": {"id": "COMPLETED"}, "operation": {"location": path}}

    async def _trigger(self, request: web.Request) -> web.Response:
        job = self._job(request)
        trigger = (await request.json()).get("triggerId") or uuid.uuid4().hex
        with job.lock:
            if job.behaviour.checkpoints and job.state == "RUNNING":
                job.catch_up()
                self.checkpoint(job)
            job.requests[trigger] = {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": job.checkpoint_id}}
        return web.json_response({"request-id": trigger}, status=202)

    async def _rescale(self, request: web.Request) -> web.Response:
        job, trigger = self._job(request), request.query["triggerId"]
        with job.lock:
            wanted = int(request.query["parallelism"])
            cause = (
                None if self.slots(job) >= wanted else {"class": "NotEnoughSlots", "stack-trace": "not enough slots"}
            )
            if cause is None:
                job.parallelism = wanted
            job.requests[trigger] = {
                "status": {"id": "COMPLETED"},
                "operation": {"failure-cause": cause} if cause else {},
            }
        return web.json_response({"request-id": trigger}, status=202)

    async def _request(self, request: web.Request) -> web.Response:
        found = self._job(request).requests.get(request.match_info["request"])
        return web.json_response(found) if found else web.json_response({"errors": ["unknown"]}, status=404)
