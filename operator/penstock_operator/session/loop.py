"""One pass over one FlinkCluster: read, observe, decide, emit events, write the status, act."""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.api.flinkcluster import ClusterDeletion, FlinkClusterSpec, parse_cluster_status
from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.api.status.flinkjob_status import parse_status
from penstock_operator.api.validation import check_own_identity, parse_cluster_spec
from penstock_operator.engine.autoscaler import RESCALING
from penstock_operator.engine.client import MasterTls
from penstock_operator.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    EngineError,
    NameTaken,
    NotLeader,
    OperatorError,
    SpecError,
    in_words,
)
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKCLUSTER, FLINKJOB, KINDS, POD, REVISION, SECRET, SERVICE
from penstock_operator.reconcile.act.objects import check_secrets, mark_busy
from penstock_operator.reconcile.loop import Loop
from penstock_operator.reconcile.observation import TERMINAL
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.secrets import read_secret
from penstock_operator.resources import children, flinkcluster
from penstock_operator.resources.names import (
    CA_KEY,
    CLUSTER,
    CLUSTER_REVISION,
    FINALIZER,
    ROLE,
    Owner,
    incarnation_prefix,
)
from penstock_operator.session import context as actions
from penstock_operator.session.context import ClusterContext, JobSeen, RevisionSeen, SessionUse, WorkerPod
from penstock_operator.session.decide import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkcluster import DeletionOfJobs
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.engine.client import EngineClient, SessionOverview
    from penstock_operator.errors import Problem
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)

OTHERS_READ = 50
"""Maximum number of jobs without a FlinkJob whose slots are read in a pass. Each of the others counts with one slot."""
REAPPLY = "all objects"
"""Flaw of a revision whose objects are all applied again."""


class ClusterLoop(Loop):
    """Reconcile loop of one FlinkCluster."""

    kind = FLINKCLUSTER

    def __init__(
        self, namespace: str, name: str, ports: Ports, report_error: Callable[[Exception], None] | None = None
    ) -> None:
        super().__init__(namespace, name, ports, *((report_error,) if report_error else ()))
        self._failure = ""
        """Reason why the last action was refused."""
        self._refused: frozenset[int] = frozenset()
        """Revisions whose objects were refused. Each is applied again after a pass that applies none."""
        self._applied: dict[int, tuple[int, datetime]] = {}
        """Generation and time of the last apply of all objects, by revision."""
        self._empty_since: datetime | None = None
        """Time when the last revision of a cluster that is being deleted was gone."""

    @property
    def job(self) -> str | None:
        """None, because several FlinkJobs use the cluster."""
        return None

    def read_all_objects(self) -> None:
        """Apply all objects in the next pass."""
        self._applied.clear()

    async def _step(self) -> tuple[timedelta | None, bool]:
        manifest = await self._ports.cluster.get(FLINKCLUSTER, self.namespace, self.name)
        if manifest is None or not self._ports.shard.selects(manifests.labels_of(manifest)):
            return None, False
        ctx, specs = await self._context(manifest)
        decision = decide(ctx)
        await self._record_events(ctx.uid, decision.events)
        if decision.status.to_manifest() != (manifest.get("status") or {}):
            await self._write(manifest, decision.status.to_manifest())
        self._failure = ""
        number = decision.action.number if isinstance(decision.action, actions.ApplyRevision) else None
        if number is None:
            self._refused = frozenset()
        if decision.action is None:
            return decision.requeue, False
        try:
            await self._act(ctx, specs, decision.action)
        except (Conflict, NotLeader):
            raise
        except Exception as error:
            if not isinstance(error, OperatorError):
                self._report_error(error)
            log.info("%s/%s: %s: %s", self.namespace, self.name, type(decision.action).__name__, error)
            self._failure = in_words(error)
            self._refused |= {number} if number is not None else frozenset()
        return decision.requeue, decision.requeue is None

    # --- observation -------------------------------------------------------------------------------------------------

    async def _context(self, manifest: Manifest) -> tuple[ClusterContext, Mapping[int, FlinkClusterSpec]]:
        """Return the input of the decision, and the specs of the revisions."""
        meta, now, raw = manifest["metadata"], self._ports.now(), manifest.get("spec") or {}
        spec: FlinkClusterSpec | None = None
        problems: tuple[Problem, ...] = ()
        try:
            spec, job = parse_cluster_spec(raw)
            limits = self._ports.settings
            problems = (*check_own_identity(job, limits.own_identity), *limits.tenants.problems(job))
            spec = None if problems else spec
        except SpecError as error:
            problems = error.problems
        mine = {CLUSTER: self.name}
        existing = await self._ports.cluster.list(REVISION, self.namespace, mine)
        stored = [m for m in existing if _cluster_uid(m) == meta["uid"]]
        pods = await self._ports.cluster.list(POD, self.namespace, mine)
        ctx = ClusterContext(
            namespace=self.namespace,
            name=self.name,
            uid=meta["uid"],
            generation=int(meta.get("generation", 1)),
            spec=spec,
            status=parse_cluster_status(manifest.get("status")),
            now=now,
            digest=flinkcluster.revision_digest(spec) if spec is not None else "",
            problems=problems,
            is_deleting="deletionTimestamp" in meta,
            deletes=_policy(raw),
            has_finalizer=FINALIZER in (meta.get("finalizers") or ()),
            pods=len(pods),
            failure=self._failure,
            refused=self._refused,
            taken=max((_number(m) for m in existing if _cluster_uid(m) != meta["uid"]), default=0),
            settings=self._ports.settings,
        )
        specs = {number: found for m in stored if (found := _stored_spec(m)) and (number := _number(m))}
        revisions = await self._revisions(ctx, specs, {n: m for m in stored if (n := _number(m))}, pods)
        self._empty_since = (self._empty_since or now) if ctx.is_deleting and not revisions else None
        ctx = replace(ctx, revisions=revisions, empty_for=now - self._empty_since if self._empty_since else None)
        ctx = replace(ctx, jobs=await self._jobs(ctx), workers=self._workers(ctx, pods))
        session, use = await self._session(ctx, specs)
        ctx = replace(ctx, session=session, use=use)
        return ctx, specs

    def _workers(self, ctx: ClusterContext, pods: list[Manifest]) -> tuple[WorkerPod, ...]:
        """Return the worker pods of the current revision."""
        revision = flinkcluster.revision_name(self.name, ctx.status.revision or 0)
        mine = [p for p in pods if manifests.labels_of(p).get(CLUSTER_REVISION) == revision]
        views = [manifests.pod(p) for p in mine if manifests.labels_of(p).get(ROLE) == "worker"]
        return tuple(WorkerPod(view.name, view.ip, view.ready and not view.terminating) for view in views)

    async def _revisions(
        self,
        ctx: ClusterContext,
        specs: Mapping[int, FlinkClusterSpec],
        stored: Mapping[int, Manifest],
        pods: list[Manifest],
    ) -> tuple[RevisionSeen, ...]:
        mine = {CLUSTER: self.name}
        live = await self._ports.cluster.list(DEPLOYMENT, self.namespace, mine)
        services = await self._ports.cluster.list(SERVICE, self.namespace, mine)
        found = []
        for number, spec in sorted(specs.items()):
            if "deletionTimestamp" in stored[number]["metadata"]:
                continue
            owner = self._owner(number, stored[number]["metadata"]["uid"])
            own = {m["metadata"]["name"]: m for m in live if m["metadata"]["name"] in (owner.master, owner.worker)}
            views = {name: manifests.deployment(m) for name, m in own.items()}
            worker = views.get(owner.worker)
            ready = [manifests.labels_of(p).get(ROLE) for p in pods if _is_ready(p, owner)]
            found.append(
                RevisionSeen(
                    number=number,
                    digest=flinkcluster.revision_digest(spec),
                    flaw=self._flaw(ctx, owner, number, spec, own, {m["metadata"]["name"] for m in services}),
                    master_ready="master" in ready,
                    workers_wanted=worker.replicas if worker is not None else 0,
                    workers_ready=ready.count("worker"),
                    trouble=_trouble(owner, pods, [v for v in views.values() if v.trouble]),
                )
            )
        return tuple(found)

    def _flaw(
        self,
        ctx: ClusterContext,
        owner: Owner,
        number: int,
        spec: FlinkClusterSpec,
        live: Mapping[str, Manifest],
        services: set[str],
    ) -> str:
        """Return the first object of a revision that must be applied. All objects are applied after an edit, and
        periodically.
        """
        applied = self._applied.get(number)
        if applied is None or applied[0] != ctx.generation or ctx.now - applied[1] >= ctx.settings.dependents_resync:
            return REAPPLY
        if owner.rest not in services:
            return f"Service {owner.rest}"
        job, lost = self._job_spec(ctx, number, spec), ctx.settings.lost_node_toleration
        for wanted in flinkcluster.deployments(owner, job, number, 1, lost):
            name = wanted["metadata"]["name"]
            if name not in live:
                return f"Deployment {name}"
            changed = manifests.drift(wanted, live[name])
            if changed:
                return f"Deployment {name} ({changed})"
        return ""

    async def _jobs(self, ctx: ClusterContext) -> tuple[JobSeen, ...]:
        """Return the FlinkJobs that run in the cluster, and those that are being started in it."""
        found = await self._list_jobs(ctx)
        seen = (_job(manifest, self.namespace, self.name) for manifest in found)
        return tuple(sorted((job for job in seen if job is not None), key=lambda job: job.name))

    async def _list_jobs(self, ctx: ClusterContext) -> list[Manifest]:
        shared = ctx.spec is None or ctx.spec.jobs.namespace_selector is not None
        if shared:
            try:
                return await self._ports.cluster.list(FLINKJOB, None)
            except Denied:
                log.debug("%s/%s: FlinkJobs of other namespaces cannot be listed", self.namespace, self.name)
        return await self._ports.cluster.list(FLINKJOB, self.namespace)

    async def _session(
        self, ctx: ClusterContext, specs: Mapping[int, FlinkClusterSpec]
    ) -> tuple[SessionOverview | None, SessionUse | None]:
        """Return the slots of the current revision and, if its workers follow its jobs, the use of the workers."""
        current = ctx.revision(ctx.status.revision)
        spec = specs.get(current.number) if current is not None else None
        if current is None or spec is None or not current.master_ready:
            return None, None
        owner = self._owner(current.number, "")
        try:
            token = (await read_secret(self._ports, self.namespace, owner.secrets)).get("rest-token")
            name = rest_tls_secret(flinkcluster.as_job(spec))
            tls = MasterTls((await read_secret(self._ports, self.namespace, name)).get(CA_KEY, "")) if name else None
            client = self._ports.engines(self.namespace, owner.name, token, tls)
            follows = ctx.spec is not None and ctx.spec.worker.autoscaling is not None
            return await client.session(), await _use(client, ctx.jobs) if follows else None
        except EngineError as error:
            log.debug("%s/%s: %s", self.namespace, self.name, error)
            return None, None

    # --- actions -----------------------------------------------------------------------------------------------------

    async def _act(
        self, ctx: ClusterContext, specs: Mapping[int, FlinkClusterSpec], action: actions.ClusterAction
    ) -> None:
        if isinstance(action, actions.AddFinalizer):
            await self._finalizers(lambda present: [*present, FINALIZER])
        elif isinstance(action, actions.RemoveFinalizer):
            await self._finalizers(lambda present: present)
        elif isinstance(action, actions.CreateRevision) and ctx.spec is not None:
            await self._create_revision(ctx, ctx.spec, action.number)
        elif isinstance(action, actions.ApplyRevision):
            await self._apply(ctx, specs[action.number], action)
        elif isinstance(action, actions.ScaleWorkers):
            name = self._owner(action.number, "").worker
            await self._mark_busy(action)
            await self._ports.cluster.merge(DEPLOYMENT, self.namespace, name, {"spec": {"replicas": action.workers}})
        elif isinstance(action, actions.DeleteRevision):
            name = flinkcluster.revision_name(self.name, action.number)
            await self._ports.cluster.delete(REVISION, self.namespace, name)

    async def _mark_busy(self, action: actions.ScaleWorkers) -> None:
        """Mark the worker pods of a revision that run a part of a job, so that the ReplicaSet removes the others first."""
        if not action.busy:
            return
        revision = flinkcluster.revision_name(self.name, action.number)
        pods = await self._ports.cluster.list(POD, self.namespace, {CLUSTER_REVISION: revision, ROLE: "worker"})
        await mark_busy(self._ports.cluster, pods, action.busy)

    async def _create_revision(self, ctx: ClusterContext, spec: FlinkClusterSpec, number: int) -> None:
        wanted = flinkcluster.controller_revision(self.namespace, self.name, ctx.uid, number, spec, ctx.generation)
        try:
            await self._ports.cluster.create(wanted)
        except AlreadyExists as error:
            name = wanted["metadata"]["name"]
            live = await self._ports.cluster.get(REVISION, self.namespace, name)
            if live is not None and (live.get("data") or {}).get("cluster") == wanted["data"]["cluster"]:
                return
            msg = f"ControllerRevision {name} exists and was not created for this FlinkCluster. Delete it, or choose another name"
            raise NameTaken(msg) from error

    async def _apply(self, ctx: ClusterContext, spec: FlinkClusterSpec, action: actions.ApplyRevision) -> None:
        cluster, number = self._ports.cluster, action.number
        revision = await cluster.get(REVISION, self.namespace, flinkcluster.revision_name(self.name, number))
        if revision is None:
            return
        owner = self._owner(number, revision["metadata"]["uid"])
        job, lost = self._job_spec(ctx, number, spec), ctx.settings.lost_node_toleration
        around = flinkcluster.around(owner, self._with_current_access(ctx, number, job), self._ports.identity, number)
        pods = flinkcluster.deployments(owner, job, number, action.workers, lost)
        for wanted in (*around, *pods):
            live = await cluster.get(KINDS[wanted["kind"]], self.namespace, wanted["metadata"]["name"])
            if live is not None and manifests.labels_of(live).get(CLUSTER_REVISION) != owner.name:
                msg = f"{wanted['kind']} {wanted['metadata']['name']} exists and was not created for this FlinkCluster. Delete or rename it"
                raise NameTaken(msg)
            await check_secrets(self._ports, owner, wanted)
        await self._ensure_secret(owner)
        for wanted in around:
            if not wanted.get("immutable"):
                await cluster.apply(wanted)
                continue
            try:
                await cluster.create(wanted)
            except AlreadyExists:
                log.debug("ConfigMap %s exists", wanted["metadata"]["name"])
        for wanted in pods:
            await cluster.apply(wanted)
        await self._delete_unwanted(owner, around)
        self._applied[number] = (ctx.generation, ctx.now)

    def _with_current_access(self, ctx: ClusterContext, number: int, job: FlinkJobSpec) -> FlinkJobSpec:
        """Return the spec of a revision with the network access of the newest spec. Only the current revision has the Ingress."""
        if ctx.spec is None:
            return job
        is_current = ctx.status.revision in (None, number)
        return job.model_copy(
            update={
                "network_policy": ctx.spec.network_policy,
                "ingress": ctx.spec.ingress if is_current else None,
                "service_account": job.service_account.model_copy(
                    update={"annotations": ctx.spec.service_account.annotations}
                ),
            }
        )

    async def _ensure_secret(self, owner: Owner) -> None:
        if await self._ports.cluster.get(SECRET, self.namespace, owner.secrets) is None:
            made = children.secret(owner, secrets.token_urlsafe(32), secrets.token_urlsafe(48))
            try:
                await self._ports.cluster.create(made)
            except AlreadyExists:
                log.debug("Secret %s exists", owner.secrets)

    async def _delete_unwanted(self, owner: Owner, wanted: list[dict[str, Any]]) -> None:
        kept = {(m["kind"], m["metadata"]["name"]) for m in wanted}
        for kind, name in children.optional_children(owner):
            if (kind, name) in kept:
                continue
            live = await self._ports.cluster.get(KINDS[kind], owner.namespace, name)
            if live is not None and manifests.labels_of(live).get(CLUSTER_REVISION) == owner.name:
                await self._ports.cluster.delete(KINDS[kind], owner.namespace, name)

    async def _finalizers(self, change: Callable[[list[str]], list[str]]) -> None:
        manifest = await self._ports.cluster.get(FLINKCLUSTER, self.namespace, self.name)
        if manifest is None:
            return
        meta = manifest["metadata"]
        others = [f for f in meta.get("finalizers") or () if f != FINALIZER]
        patch = {"finalizers": change(others), "resourceVersion": meta["resourceVersion"]}
        await self._ports.cluster.merge(FLINKCLUSTER, self.namespace, self.name, {"metadata": patch})

    def _owner(self, number: int, uid: str) -> Owner:
        return Owner(self.namespace, flinkcluster.revision_name(self.name, number), uid, cluster=self.name)

    def _job_spec(self, ctx: ClusterContext, number: int, spec: FlinkClusterSpec) -> FlinkJobSpec:
        return flinkcluster.as_job(spec, flinkcluster.programs_folder(self.namespace, self.name, ctx.uid, number, spec))


def _policy(raw: Mapping[str, Any]) -> DeletionOfJobs:
    try:
        return ClusterDeletion.model_validate(raw.get("deletion") or {}).jobs
    except ValidationError:
        return "Wait"


def _cluster_uid(manifest: Manifest) -> str:
    """Return the uid of the FlinkCluster of a revision. A former FlinkCluster of the same name has another uid."""
    return str(((manifest.get("data") or {}).get("cluster") or {}).get("uid", ""))


def _number(manifest: Manifest) -> int:
    number = ((manifest.get("data") or {}).get("cluster") or {}).get("number")
    return number if isinstance(number, int) else 0


def _stored_spec(manifest: Manifest) -> FlinkClusterSpec | None:
    try:
        return FlinkClusterSpec.model_validate((manifest.get("data") or {}).get("spec"))
    except ValidationError:
        return None


def _is_ready(manifest: Manifest, owner: Owner) -> bool:
    view = manifests.pod(manifest)
    return manifests.labels_of(manifest).get(CLUSTER_REVISION) == owner.name and view.ready and not view.terminating


def _trouble(owner: Owner, pods: list[Manifest], refused: list[Any]) -> str:
    """Return the first problem of the pods of a revision."""
    mine = [p for p in pods if manifests.labels_of(p).get(CLUSTER_REVISION) == owner.name]
    ordered = sorted(mine, key=lambda p: manifests.labels_of(p).get(ROLE) != "master")
    found = [str(view.trouble) for p in ordered if (view := manifests.pod(p)).trouble and not view.ready]
    return next(iter([*found, *(str(view.trouble) for view in refused)]), "")


def _job(manifest: Manifest, namespace: str, name: str) -> JobSeen | None:
    """Return a FlinkJob that uses the cluster, or None if it does not use it."""
    meta, status = manifest["metadata"], parse_status(manifest.get("status"))
    running, op = status.running, status.operation
    where = ClusterRef.parse(running.cluster) if running is not None and running.finished_at is None else None
    number = where.number if where is not None and (where.namespace, where.name) == (namespace, name) else None
    wished = ClusterRef.named((manifest.get("spec") or {}).get("cluster"), meta["namespace"])
    if number is None and (wished is None or (wished.namespace, wished.name) != (namespace, name) or op is None):
        return None
    rejected = status.rejected
    return JobSeen(
        name=f"{meta['namespace']}/{meta['name']}",
        generation=int(meta.get("generation", 1)),
        revision=number,
        is_settled=op is None,
        slots=_slots(manifest, status),
        message=status.message,
        blocked=op is not None and bool(op.blocked),
        rejected_at=rejected.time if rejected is not None else None,
        rejection=rejected.message if rejected is not None else "",
    )


async def _use(client: EngineClient, jobs: tuple[JobSeen, ...]) -> SessionUse:
    """Return the use of the workers of a session.

    The ids of the jobs of a FlinkJob have the prefix of its name. So a job counts once, also if the status of its FlinkJob
    does not have its id yet.
    """
    prefixes = tuple(incarnation_prefix(*job.name.split("/", 1)) for job in jobs)
    others = [job for job in await client.jobs() if job.state not in TERMINAL and not job.id.startswith(prefixes)]
    sizes = [await client.parallelism(job.id) or 1 for job in others[:OTHERS_READ]]
    return SessionUse(await client.busy_workers(), sum(sizes) + len(others[OTHERS_READ:]))


def _slots(manifest: Manifest, status: FlinkJobStatus) -> int:
    """Return the number of slots that a FlinkJob needs now, or that it waits for."""
    running, op, auto = status.running, status.operation, status.autoscaling
    job = (manifest.get("spec") or {}).get("job") or {}
    found = [running.parallelism if running is not None and running.finished_at is None else 0]
    if op is not None and op.kind != "Suspend":
        found.append(op.target_parallelism or 0)
        starts = op.kind not in ("Rescale", "Delete")
        first = auto.parallelism if auto is not None and auto.mode == "active" else job.get("parallelism", 1)
        found.append(first if starts and isinstance(first, int) else 0)
    if auto is not None and auto.mode == "active" and auto.reason in RESCALING:
        found.append(auto.wanted)
    return max(found)
