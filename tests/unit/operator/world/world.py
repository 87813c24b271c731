"""The whole simulation: the clock, the user, Deployments, pods, check pods, jobs."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.api.limits.tenant_limits import TenantLimits
from penstock_operator.api.types import format_time
from penstock_operator.errors import Unavailable
from penstock_operator.process.metrics import Metrics
from penstock_operator.reconcile.clock import SteadyClock
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.ports import Ports
from penstock_operator.resources.names import CLUSTER_REVISION
from penstock_operator.session.loop import ClusterLoop
from penstock_operator.settings import Settings
from penstock_operator.snapshot.loop import SnapshotLoop
from tests.unit.operator.world.engine import FakeEngineClient, FakeJob
from tests.unit.operator.world.faults import Fault, Killed
from tests.unit.operator.world.inputs import PodInputs
from tests.unit.operator.world.kubernetes.cluster import FakeCluster
from tests.unit.operator.world.kubernetes.deployments import Deployments
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.kubelet import NAME, Kubelet
from tests.unit.operator.world.kubernetes.watch import EventReceiver, Watch
from tests.unit.operator.world.session import FakeSessionClient, advance_sessions, live_jobs, slots_for
from tests.unit.operator.world.sink import Sink
from tests.unit.operator.world.storage import FakeStorage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock_operator.engine.client import MasterTls
    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.job_loop import Transition
    from penstock_operator.snapshot.loop import SnapshotTransition

OPEN = TenantLimits(ingress_domains=("example", "example.org"))
"""The limits that the simulated platform sets for jobs."""
MEANT = OwnIdentity(locations=("s3://bucket", "s3://elsewhere"), endpoints=("http://elsewhere:9000",))
"""The identity with which jobs need no Secret, except in tests about Secrets."""
START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def flinkjob(name: str = NAME, *, image: str = "job:1", **job: Any) -> Manifest:
    """Return a FlinkJob as the API server stores it, with parallelism 2."""
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
    """Return a FlinkSnapshot that takes a savepoint, except for the given fields."""
    body = spec if "checkpoint" in spec else {"savepoint": {"disposeOnDelete": True}, **spec}
    return {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkSnapshot",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"jobRef": {"name": job}, **body},
    }


class World(Kubelet):
    """One cluster, one store, one clock, and one operator that can be killed and restarted."""

    def __init__(self, fault: Fault | None = None, settings: Settings | None = None) -> None:
        self.fault = fault or Fault()
        self.time = START
        self.skew = timedelta(0)
        """The lead of the wall clock of the operator's node."""
        self.next_skew: timedelta | None = None
        """The lead of the wall clock on the node of the operator's next process, or None for the same as now."""
        self.clock = self._new_clock()
        self.images: dict[str, Image] = {}
        self.cluster = FakeCluster(self.fault, lambda: format_time(self.time))
        self.deployments = Deployments(self.cluster)
        self.inputs = PodInputs(self.cluster)
        self.storage = FakeStorage(self.fault)
        self.sink = Sink()
        self.jobs: dict[str, FakeJob] = {}
        """The jobs by the uid of the master's pod."""
        self.standby_parallelisms: dict[str, int] = {}
        """The parallelism on the command line since the container started, by the uid of the master's pod."""
        self._init_sessions()
        self.savepoints: list[str] = []
        self.rescales: list[int] = []
        self.rest_down = False
        self.summaries = True
        """Whether masters know `/jobs/:id/summary`. Earlier versions do not."""
        self.polls = 0
        """The number of polls of masters."""
        self.node_capacity = 100
        self.taints_evict = True
        """Whether pods on lost nodes are deleted after their toleration."""
        self.deaths = 0
        self.defects: list[Exception] = []
        """Unforeseen exceptions in passes. They fail the test unless it `has_defects`."""
        self.has_defects = False
        self.crashes = 0
        """The number of crashes of masters."""
        self.masters_hang = False
        """Whether a fenced master does not end."""
        self.zombies: set[str] = set()
        """Uids of masters' pods that keep running unobserved."""
        self.watch: Callable[[Transition], None] = lambda transition: None
        self.watch_snapshots: Callable[[SnapshotTransition], None] = lambda transition: None
        self.two_masters: list[str] = []
        self._init_autoscalers()
        self.misaddressed = 0
        """The number of requests to a master with another protocol or CA than it serves."""
        self.ports = Ports(
            self.cluster,
            self._client,
            self.storage,
            settings=settings or Settings(own_identity=MEANT, tenants=OPEN),
            now=lambda: self.clock(),
            monotonic=lambda: (self.time - START).total_seconds(),
        )
        self.controller = EventReceiver(self.ports, Metrics())
        self.watching = Watch(self)
        self.loops: dict[tuple[str, str], JobLoop | SnapshotLoop | ClusterLoop] = {}
        self.due: dict[tuple[str, str], tuple[datetime, int]] = {}
        """The time of the loop's next pass and the number of events at its last pass, by kind and name."""

    def _init_sessions(self) -> None:
        self.sessions: dict[str, dict[str, FakeJob]] = {}
        """The jobs of the programs of each session by id, by the name of the FlinkCluster's revision."""
        self.starting: set[str] = set()
        """Ids of jobs whose programs start, and that are not accepted yet."""
        self.served: dict[str, str] = {}
        """Texts of the programs on servers, by URL."""
        self.submitted: list[dict[str, Any]] = []
        """Requests that sessions have received to start a program."""
        self.fetched: list[dict[str, Any]] = []
        """Requests that sessions have received to fetch a program."""
        self.uploads: dict[str, bytes] = {}
        """The programs in the storage of sessions."""
        self.interrupted: set[str] = set()
        """The jobs of sessions whose master is down."""

    def _init_autoscalers(self) -> None:
        self.load: int | None = None
        """The parallelism that the load needs, for jobs with an autoscaler. None means the current one."""
        self.limit = ""
        """The reason of the autoscaler for which it does not rescale."""
        self.has_autoscaler = True
        """Whether the engine of the images has an autoscaler."""
        self.ignores_limits = False
        """Whether the engine ignores the maximum parallelism of its settings."""
        self.memory_advice = 0
        """The memory of a worker that the engine recommends, in MiB. 0 means that it recommends nothing."""
        self.settings_refused = ""
        """The engine's reason to refuse new settings of the autoscaler."""
        self.settings_sent = 0
        """The number of times that an engine has accepted new settings."""

    def now(self) -> datetime:
        return self.time

    def session_slots_of(self, job_id: str) -> list[str]:
        return slots_for(self, job_id)

    def live_session_jobs(self) -> list[FakeJob]:
        return live_jobs(self)

    def _client(
        self, namespace: str, name: str, token: str | None, tls: MasterTls | None = None
    ) -> FakeEngineClient | FakeSessionClient:
        is_session = name in self.sessions or self.cluster.select("Pod", None, {CLUSTER_REVISION: name})
        return (FakeSessionClient if is_session else FakeEngineClient)(self, name, tls)

    def _new_clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.time + self.skew, lambda: (self.time - START).total_seconds())

    def jump(self, skew: timedelta) -> None:
        """Let the wall clock of the operator's node jump to this distance from the true time."""
        self.skew = skew

    def restart_operator(self) -> None:
        """Replace the operator's process by a new one, which has the wall clock of its node."""
        self.skew = self.skew if self.next_skew is None else self.next_skew
        self.clock = self._new_clock()
        self.loops.clear()
        self.due.clear()

    def deliver_event(self, kind: Kind, manifest: Manifest, *, deleted: bool = False, listed: bool = False) -> None:
        """Deliver an event of a watch stream."""
        self.controller.handle_event(kind, manifest, deleted=deleted, listed=listed)

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
        """Create a Secret with keys for storage."""
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
        """Return the status of the FlinkSnapshots by name."""
        wanted = {f"penstock.dev/{key}": value for key, value in labels.items()}
        found = self.cluster.select("FlinkSnapshot", None, wanted)
        return {m["metadata"]["name"]: m.get("status", {}) for m in found}

    def events(self) -> list[tuple[str, str]]:
        found = [m for (kind, _, _), m in self.cluster.objects.items() if kind == "Event"]
        found.sort(key=lambda m: (m["firstTimestamp"], int(m["metadata"]["resourceVersion"])))
        return [(m["reason"], m["message"]) for m in found]

    # --- time --------------------------------------------------------------------------------------------------------

    async def operate(self, name: str = NAME, kind: str = "FlinkJob") -> None:
        """Run one pass of the operator. If it is killed, a new operator replaces it at the next pass.

        The next pass is at the time that the loop requested, or after any change in the cluster. The real controller
        would wake it for fewer changes.
        """
        loop = self.loops.get((kind, name))
        if loop is None:
            report_error = self.defects.append
            job = JobLoop("default", name, self.ports, lambda transition: self.watch(transition), report_error)
            snapshot = SnapshotLoop(
                "default", name, self.ports, lambda transition: self.watch_snapshots(transition), report_error
            )
            cluster = ClusterLoop("default", name, self.ports, report_error)
            found: dict[str, JobLoop | SnapshotLoop | ClusterLoop] = {"FlinkJob": job, "FlinkSnapshot": snapshot}
            loop = self.loops[kind, name] = found.get(kind, cluster)
        before, pause = self.watching.event_count, timedelta(0)
        try:
            wanted = await loop.reconcile()
            pause = timedelta(days=1) if wanted is None else wanted
        except Killed:
            self.deaths += 1
            self.restart_operator()
        except Exception as error:
            foreseen = isinstance(error, Unavailable) and self.cluster.broken
            if not foreseen and (not self.fault.struck or not self.fault.mode.startswith("fail")):
                raise
        if self.defects and not self.has_defects:
            raise self.defects[0]
        self.due[kind, name] = (self.time + pause, before)

    async def run(
        self, seconds: float, *, also: Callable[[], Awaitable[None]] | None = None, pace: float = 1.0
    ) -> None:
        """Let everything run for a while. `pace` is the time in seconds between two turns. See `until`."""
        end = self.time + timedelta(seconds=seconds)
        while self.time < end:
            await self._turn(also, pace)

    async def until(
        self,
        reached: Callable[[], bool],
        *,
        within: float = 900,
        also: Callable[[], Awaitable[None]] | None = None,
        pace: float = 1.0,
    ) -> None:
        """Let everything run until the condition holds.

        Args:
            within: the time in seconds in which the condition must hold.
            also: a function that is called in every turn.
            pace: the time in seconds between two turns. A long wait for one deadline needs fewer turns.
        """
        end = self.time + timedelta(seconds=within)
        while not reached():
            assert self.time < end, self.describe()
            await self._turn(also, pace)

    async def _turn(self, also: Callable[[], Awaitable[None]] | None, pace: float) -> None:
        self.watching.deliver()
        await self.watching.resync()
        for kind in ("FlinkCluster", "FlinkJob", "FlinkSnapshot"):
            for name in [m["metadata"]["name"] for m in self.cluster.select(kind, None, {})]:
                when, version = self.due.get((kind, name), (self.time, 0))
                if self.time >= when or self.watching.event_count != version:
                    await self.operate(name, kind)
        if also is not None:
            await also()
        self.tick(pace)

    def settled(self, name: str = NAME) -> bool:
        """Return whether the operator is done: Ready or Stalled for the current generation, and without an operation."""
        status = self.status(name)
        current = status.get("observedGeneration") == self.job(name)["metadata"]["generation"]
        ready = self.condition("Ready", name).get("status") == "True"
        return current and "operation" not in status and ready

    def stalled(self, name: str = NAME) -> bool:
        status = self.status(name)
        current = status.get("observedGeneration") == self.job(name)["metadata"]["generation"]
        return current and self.condition("Stalled", name).get("status") == "True"

    def describe(self) -> str:
        """Return a description of the world for the message of a failed test."""
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
        """Advance: Deployments create pods, pods start and end, jobs process records."""
        self.time += timedelta(seconds=seconds)
        self.cluster.garbage.collect()
        if self.taints_evict:
            self.evict_from_lost_nodes()
        for deployment in self.cluster.select("Deployment", None, {}):
            self.deployments.control(deployment)
        for pod in self.cluster.select("Pod", None, {}):
            self._pod(pod)
        for uid, job in self.jobs.items():
            if self._master_alive(uid):
                job.advance(seconds, self.workers_up(job.name, job.job_id))
        advance_sessions(self, seconds)
        self._watch_masters()


__all__ = ["Image", "World", "flinkjob", "flinksnapshot"]
