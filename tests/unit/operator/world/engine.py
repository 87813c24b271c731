"""The job in a master's pod, which reads, takes checkpoints and savepoints, commits and rescales, and its REST API."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.engine.account import Checkpoints, Progress, Request, Rescaled
from penstock_operator.engine.autoscaler import Autoscaler, read_autoscaler
from penstock_operator.engine.client import JobOverview, JobView, MasterTls, RequestKind, SessionOverview
from penstock_operator.errors import EngineError, EngineUnreachable
from penstock_operator.resources.names import JOB, ROLE
from tests.unit.operator.world.storage import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.operator.world.kubernetes.images import Image
    from tests.unit.operator.world.world import World

RATE = 10
INTERVAL = 10.0
ACTION_TIME = 1.0
RESCALE_TOOK = timedelta(milliseconds=700)
"""The duration that the engine reports for a rescale."""


@dataclass
class Pending:
    kind: str
    done_at: float
    directory: str = ""
    parallelism: int = 0
    drain: bool = False


@dataclass
class FakeJob:
    """One incarnation of a job in one master process."""

    world: World
    name: str
    job_id: str
    image: Image
    restore: str
    wanted: int
    state: str = "CREATED"
    parallelism: int = 0
    position: int = 0
    committed: int = 0
    checkpoint_id: int = 0
    completed: int = 0
    restored: int = 0
    failovers: int = 0
    epoch: int = 0
    ran: float = 0.0
    next_checkpoint: float = INTERVAL
    next_restart: float = 0.0
    suspended: float = 0.0
    """The time in seconds since the suspension."""
    requests: dict[str, Request] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    failure: str = ""
    end_of_input: bool = False
    rescaled: Rescaled | None = None
    tasks: tuple[str, ...] = ()
    """Names of the pods that run its tasks."""
    slots: int = 0
    autoscaler_mode: str = "disabled"
    autoscaler_keys: Mapping[str, str] = field(default_factory=dict)
    """The keys that the operator has sent."""
    autoscaler_keys_id: str = ""

    def take_over(self) -> bool:
        """Start from the newest own checkpoint, or from the path in the arguments, as the engine does.

        Return False if it refuses.
        """
        storage = self.world.storage
        if storage.lost:
            self.state, self.failure = "FAILED", f"[STORAGE] {storage.lost}"
            return True
        self.epoch = storage.leaders[self.job_id] = storage.leaders.get(self.job_id, 0) + 1
        if self.job_id in storage.ended:
            self.state = storage.ended[self.job_id]
            self.end_of_input = self.job_id in storage.input_read
            return True
        own = storage.of_job(self.job_id)
        if own:
            return self._restore_from(own[-1])
        if self.restore == "--fresh":
            storage.started_jobs.setdefault(self.job_id, "")
            self.world.sink.started_empty(self.name, self.job_id)
            return True
        found = storage.found.get(self.restore)
        if self.restore == "--restore-latest" or found is None or found.path in storage.torn:
            return False
        storage.started_jobs.setdefault(self.job_id, found.path)
        return self._restore_from(found)

    def _restore_from(self, snapshot: Stored) -> bool:
        self.position = self.committed = snapshot.position
        own = snapshot.path.startswith(f"{self.world.storage.root}/{self.job_id}/")
        self.checkpoint_id = snapshot.id if own else 0
        self.restored = 1
        self.world.sink.restored(self.name, snapshot)
        return True

    def advance(self, seconds: float, workers: list[str]) -> None:
        """Let time pass. Each worker that runs has one slot."""
        self.slots = slots = len(workers)
        lost = bool(self.world.storage.lost)
        if self.state == "SUSPENDED":
            self.suspended += seconds
            return
        if self.epoch and not lost and self.world.storage.leaders.get(self.job_id) != self.epoch:
            self.state = "SUSPENDED"  # fenced: another master has taken over
            self.failure = "Fenced: another JobManager has taken over"
            return
        if self.state == "CREATED" and slots >= self.wanted:
            self.state = "RUNNING"
            self._place(self.wanted)
        if self.state == "RUNNING" and (slots < self.parallelism or not set(self.tasks) <= set(workers)):
            self.state = "RESTARTING"
        if self.state == "RESTARTING" and slots >= self.wanted and not lost:
            self._fail_over()
        if self.image.restarts_every and self.state == "RUNNING":
            self._restart_again(seconds)
            return
        if self.state == "RUNNING":
            self._run(seconds)

    def _restart_again(self, seconds: float) -> None:
        """Restart the job whenever it runs, so that it never completes a checkpoint."""
        self.ran += seconds
        if self.ran >= self.next_restart:
            self.next_restart = self.ran + self.image.restarts_every
            self.failure = "ConnectionError: the database is away"
            self.state = "RESTARTING"

    def _fail_over(self) -> None:
        own = self.world.storage.of_job(self.job_id)
        source = own[-1] if own else self.world.storage.found.get(self.restore)
        self.position = self.committed = source.position if source else 0
        self.state = "RUNNING"
        self._place(self.wanted)
        self.restored += 1
        self.failovers += 1
        for request in list(self.pending):
            self._finish(request, Request(request, "Failed", cause="the job failed over"))

    def _run(self, seconds: float) -> None:
        self.ran += seconds
        self.position += int(RATE * seconds)
        if self.image.ends_at is not None and self.position >= self.image.ends_at:
            self.position = self.image.ends_at
            self.checkpoint()
            self.end_of_input = True
            self.world.storage.input_read.add(self.job_id)
            self._end("FINISHED")
            return
        if self.image.fails_after is not None and self.ran >= self.image.fails_after:
            self.failure = self.image.failure
            self._end("FAILED")
            return
        if self.image.checkpoints and self.ran >= self.next_checkpoint:
            self.next_checkpoint = self.ran + INTERVAL
            self.checkpoint()
        self._autoscale()
        for request, pending in list(self.pending.items()):
            if self.ran >= pending.done_at and self.state == "RUNNING":
                self._carry_out(request, pending)

    def checkpoint(self) -> None:
        if self.world.storage.lost:
            self.state, self.failure = "RESTARTING", f"[STORAGE] {self.world.storage.lost}"
            return
        self.checkpoint_id += 1
        self.completed += 1
        path = f"{self.world.storage.root}/{self.job_id}/chk-{self.checkpoint_id}"
        self._write(path)
        for old in self.world.storage.of_job(self.job_id)[:-2]:
            del self.world.storage.found[old.path]

    def _write(self, path: str) -> None:
        now = self.world.now()
        self.world.storage.put(Stored(path, self.checkpoint_id, self.job_id, self.position, now))
        self.world.storage.completed.add(self.job_id)
        self.world.sink.commit(self.name, self.committed, self.position)
        self.committed = self.position

    def _carry_out(self, request: str, pending: Pending) -> None:
        if pending.kind == "rescale":
            self._rescale(request, pending.parallelism)
        elif pending.kind == "checkpoint":
            if self.image.checkpoints:
                self.checkpoint()
                self._finish(request, Request(request, "Completed"))
            else:
                self._finish(request, Request(request, "Failed", cause="checkpoints cannot be written"))
        elif not self.image.savepoints:
            self._finish(request, Request(request, "Failed", cause="AccessDenied: the savepoint folder"))
        else:
            self.checkpoint()  # a savepoint is a checkpoint that is exported as well
            path = f"{pending.directory}/savepoint-{self.job_id[:6]}-{request[:12]}"
            self.world.storage.put(Stored(path, self.checkpoint_id, self.job_id, self.position, self.world.now()))
            self.world.savepoints.append(path)
            self._finish(request, Request(request, "Completed", location=path))
            if pending.drain:
                self.world.sink.drained.append((path, self.position))
            if pending.kind == "stop":
                self._end("FINISHED")

    def _rescale(self, request: str, parallelism: int) -> None:
        if self.world.slots(self.name, self.job_id) < parallelism:
            self._finish(request, Request(request, "Failed", cause="not enough slots"))
            return
        self._place(parallelism)
        self.world.rescales.append(parallelism)
        self.rescaled = Rescaled(parallelism, RESCALE_TOOK)
        self._finish(request, Request(request, "Completed"))

    def _place(self, parallelism: int) -> None:
        """Run the tasks, where possible in the pods that already ran some."""
        up = self.world.workers_up(self.name, self.job_id)
        self.tasks = tuple(sorted(up, key=lambda name: name not in self.tasks)[:parallelism])
        self.parallelism = self.wanted = parallelism

    def _autoscale(self) -> None:
        """Rescale to the parallelism that the load needs, if the configuration has an autoscaler and the slots are there."""
        wanted = self._needed()
        if self.autoscaler_mode == "active" and wanted != self.parallelism and wanted <= self.slots:
            self._place(wanted)
            self.world.rescales.append(wanted)
            self.rescaled = Rescaled(wanted, RESCALE_TOOK)

    def _needed(self) -> int:
        """Return the parallelism that the load needs, within the limit that the operator has sent."""
        needed = self.parallelism if self.world.load is None else self.world.load
        if self.world.ignores_limits:
            return needed
        return min(needed, int(self.autoscaler_keys.get("job.autoscaler.vertex.max-parallelism", needed)))

    def autoscaler(self) -> Autoscaler:
        wanted = self._needed()
        reason = "WITHIN_TARGET" if wanted == self.parallelism else "SCALE_DOWN"
        if wanted > self.parallelism:
            reason = "SCALE_UP" if wanted <= self.slots else "WAITING_FOR_SLOTS"
        reason = self.world.limit or reason
        now = {"current": self.parallelism, "wanted": wanted, "reason": reason, "message": f"the load needs {wanted}"}
        inputs = [{"name": "count", "parallelism": self.parallelism, "busy": 0.91234, "lagMs": None}]
        at = int(self.world.time.timestamp() * 1000)
        decision = {**now, "timestamp": at, "since": at, "inputs": inputs}
        body: dict[str, Any] = {"configurationId": self.autoscaler_keys_id}
        body |= {"mode": self.autoscaler_mode, "requested": self.wanted, "slotsAvailable": self.slots}
        if self.world.memory_advice:
            body["memory"] = {"processSize": 1 << 30, "recommendedProcessSize": self.world.memory_advice << 20}
        return read_autoscaler({**now, **body, "decisions": [decision]})

    def _finish(self, request: str, outcome: Request) -> None:
        self.requests[request] = outcome
        self.pending.pop(request, None)

    def _end(self, state: str) -> None:
        self.state = state
        if state == "FINISHED":
            self.world.storage.ended[self.job_id] = state

    def ask(self, kind: str, trigger: str, directory: str = "", parallelism: int = 0, *, drain: bool = False) -> str:
        if trigger not in self.requests:
            if self.state != "RUNNING":
                raise EngineError(f"the job is {self.state}", status=409)
            self.requests[trigger] = Request(trigger, "InProgress")
            self.pending[trigger] = Pending(kind, self.ran + ACTION_TIME, directory, parallelism, drain)
        return trigger


class FakeEngineClient:
    """The REST Service of one FlinkJob."""

    def __init__(self, world: World, name: str, tls: MasterTls | None = None) -> None:
        self.world, self.name, self.tls = world, name, tls

    def _job(self, job_id: str = "") -> FakeJob:
        job = self.world.leading(self.name)
        if job is not None and self._ca() != (None if self.tls is None else self.tls.ca):
            self.world.misaddressed += 1
            raise EngineUnreachable("the protocol or the CA is not the master's")
        if job is None or self.world.rest_down:
            raise EngineUnreachable("nobody answers")
        return job

    def _ca(self) -> str | None:
        """Return the CA of the certificate that the master serves, or None if it serves plain HTTP."""
        pods = self.world.cluster.select("Pod", None, {JOB: self.name, ROLE: "master"})
        pod = next(pod for pod in pods if self.world.jobs.get(pod["metadata"]["uid"]) is self.world.leading(self.name))
        (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "config")
        sources = [source["secret"] for source in volume["projected"]["sources"] if "secret" in source]
        named = [one["name"] for one in sources if any(item["key"] == "tls.crt" for item in one["items"])]
        if not named:
            return None
        found = self.world.cluster.one("Secret", named[0])
        return base64.b64decode(found["data"]["ca.crt"]).decode() if found else ""

    async def overview(self, job_id: str) -> JobOverview | None:
        self.world.polls += 1
        job = self._job(job_id)
        if not self.world.summaries or job.job_id != job_id:
            return None
        exception = await self.exception(job_id) if job.state != "RUNNING" else ""
        progress = await self.progress(job_id)
        points = await self.checkpoints(job_id)
        return JobOverview(JobView(job_id, job.state), points, progress, exception, end_of_input=job.end_of_input)

    async def jobs(self) -> list[JobView]:
        job = self._job()
        return [JobView(job.job_id, job.state)]

    async def parallelism(self, job_id: str) -> int | None:
        return self._job(job_id).parallelism

    async def checkpoints(self, job_id: str) -> Checkpoints:
        job = self._job(job_id)
        own = self.world.storage.of_job(job.job_id)
        newest = own[-1] if own else None
        return Checkpoints(
            completed=job.completed,
            restored=job.restored,
            latest_id=newest.id if newest else None,
            latest_path=newest.path if newest else None,
            latest_at=newest.time if newest else None,
        )

    async def progress(self, job_id: str) -> Progress:
        job = self._job(job_id)
        return Progress(job.failovers, job.rescaled)

    async def exception(self, job_id: str) -> str:
        return self._job(job_id).failure

    async def autoscaler(self, job_id: str) -> Autoscaler:
        if not self.world.has_autoscaler:
            raise EngineError("Not Found", status=404)
        return self._job(job_id).autoscaler()

    async def configure_autoscaler(self, job_id: str, keys: Mapping[str, str], configuration_id: str) -> None:
        job = self._job(job_id)
        if self.world.settings_refused:
            raise EngineError(self.world.settings_refused, status=400)
        job.autoscaler_keys, job.autoscaler_keys_id = dict(keys), configuration_id
        job.autoscaler_mode = keys["penstock.autoscaler.mode"] if keys else "disabled"
        self.world.settings_sent += 1

    async def slots(self) -> int:
        return self.world.slots(self.name, self._job().job_id)

    async def session(self) -> SessionOverview:
        raise EngineError("this is no session", status=404)

    async def upload(self, name: str, content: bytes) -> str:
        raise EngineError("this is no session", status=404)

    async def fetch(self, request: Mapping[str, Any]) -> str:
        raise EngineError("this is no session", status=404)

    async def run(self, program: str, start: Mapping[str, Any]) -> None:
        raise EngineError("this is no session", status=404)

    async def cancel(self, job_id: str) -> None:
        raise EngineError("this is no session", status=404)

    async def busy_workers(self) -> frozenset[str]:
        return frozenset(self._job().tasks)

    async def stop(self, job_id: str, directory: str, trigger_id: str) -> str:
        return self._change("stop", job_id, trigger_id, directory=directory)

    async def savepoint(self, job_id: str, directory: str, trigger_id: str) -> str:
        return self._change("savepoint", job_id, trigger_id, directory=directory)

    async def checkpoint(self, job_id: str, trigger_id: str) -> str:
        return self._change("checkpoint", job_id, trigger_id)

    async def rescale(self, job_id: str, parallelism: int, trigger_id: str) -> str:
        return self._change("rescale", job_id, trigger_id, parallelism=parallelism)

    def _change(self, kind: str, job_id: str, trigger: str, directory: str = "", parallelism: int = 0) -> str:
        call = f"rest {kind} {self.name}"
        self.world.fault.before(call)
        job = self._job(job_id)
        if job.job_id != job_id:
            raise EngineError(f"no job {job_id}", status=404)
        request = job.ask(kind, trigger, directory, parallelism)
        self.world.fault.after(call)
        return request

    async def request(self, job_id: str, kind: RequestKind, request_id: str) -> Request:
        return self._job(job_id).requests.get(request_id, Request(request_id, "Unknown"))
