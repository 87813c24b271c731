"""Carry out one action. Idempotent: each may be done twice, or stop half way and be done again.

Nothing is concluded from the answers here. The next pass looks at the world and sees whether it worked; all that is
handed back is whether the call was refused, and why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    NameTaken,
    NotLeader,
    OperatorError,
    StorageError,
    unexpected,
)
from penstock_operator.kube.cluster import CONFIG_MAP, DEPLOYMENT, FLINKJOB, FLINKSNAPSHOT, KINDS, POD, REVISION, SECRET
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observation import ActionResult
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import spare_configs
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.reconcile.observe.look import ask_storage, owner_of
from penstock_operator.resources import children as parts
from penstock_operator.resources.configuration import (
    CONFIG_FILE,
    config_map,
    former_config_map,
    parallelism_map,
    with_parallelism,
)
from penstock_operator.resources.deployments import check_pod, master_deployment, worker_deployment
from penstock_operator.resources.hold import hold
from penstock_operator.resources.names import FINALIZER, JOB, ROLE
from penstock_operator.resources.records import controller_revision, flink_snapshot
from penstock_operator.storage.concurrency import together

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.engine.client import EngineClient
    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.resources.incarnation import Incarnation
    from penstock_operator.storage.protocol import Storage

log = logging.getLogger(__name__)

_SHAPED_BY_USERS = {"Ingress", "NetworkPolicy", "ServiceAccount"}
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class Actor:
    """Does the actions of one FlinkJob."""

    def __init__(self, ctx: Context, ports: Ports, cache: Cache, complain: Callable[[Exception], None]) -> None:
        self._ctx, self._ports, self._cache, self._complain = ctx, ports, cache, complain
        self._owner = owner_of(ctx)

    async def act(self, action: actions.Action) -> ActionResult:
        """Do it; a refusal is a result, not an exception."""
        name = type(action).__name__
        try:
            request_id = await _HANDLERS[type(action)](self, action)
        except NotLeader:
            raise
        except OperatorError as error:
            log.info("%s/%s: %s: %s", self._owner.namespace, self._owner.name, name, error)
            return ActionResult(name, ok=False, code=error.code, message=str(error))
        except Exception as error:  # a defect: told like a refusal, and tried again
            self._complain(error)
            return ActionResult(name, ok=False, code=OperatorError.code, message=unexpected(error))
        return ActionResult(name, ok=True, request_id=request_id)

    # --- the FlinkJob ------------------------------------------------------------------------------------------------

    async def add_finalizer(self, _: actions.AddFinalizer) -> None:
        """Keep what other finalizers there are."""
        await self._finalizers(lambda present: [*present, FINALIZER] if FINALIZER not in present else present)

    async def remove_finalizer(self, _: actions.RemoveFinalizer) -> None:
        """Ours only; first what holds the job's objects goes."""
        try:
            await self._delete_hold()
        except Denied as error:  # a deletion ends; the hold goes when the operator may delete it (`process.orphans`)
            log.warning("%s/%s stays: %s", self._owner.namespace, self._owner.hold, error)
        await self._finalizers(lambda present: [f for f in present if f != FINALIZER])

    async def _finalizers(self, change: Callable[[list[str]], list[str]]) -> None:
        job = await self._ports.cluster.get(FLINKJOB, self._owner.namespace, self._owner.name)
        if job is None or job["metadata"]["uid"] != self._owner.uid:
            return
        present = list(job["metadata"].get("finalizers") or [])
        if change(present) == present:
            return
        version = job["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": change(present), "resourceVersion": version}}
        await self._ports.cluster.merge(FLINKJOB, self._owner.namespace, self._owner.name, patch)

    # --- revisions and checks ----------------------------------------------------------------------------------------

    async def record_revision(self, action: actions.RecordRevision) -> None:
        """Revisions never change: one that is there is the same one."""
        generation = self._ctx.subject.generation
        await self._create(controller_revision(self._owner, action.name, action.spec, generation))

    async def prune_revisions(self, action: actions.PruneRevisions) -> None:
        """Delete old ones."""
        for name in action.names:
            await self._ports.cluster.delete(REVISION, self._owner.namespace, name)

    async def try_objects(self, action: actions.TryObjects) -> None:
        """Those that users shape: a refusal now, while the old job runs, is better than one after it was stopped."""
        owner, ports, new = self._owner, self._ports, action.incarnation
        lost = ports.settings.lost_node_toleration
        children = parts.children(owner, action.desired, ports.identity)
        config = [config_map(owner, new), parallelism_map(owner, new.parallelism)]
        pods = [worker_deployment(owner, new, action.workers, lost), master_deployment(owner, new, lost)]
        await self._claim(*children, *config, *pods, parts.secret(owner, "", ""))
        for manifest in [*(m for m in children if m["kind"] in _SHAPED_BY_USERS), *pods]:
            await ports.cluster.apply(manifest, dry_run=True)

    async def run_check(self, action: actions.RunCheck) -> None:
        """The pod needs the workers' ServiceAccount and the Secret, which do not exist before the first start."""
        await self._hold()
        for account in parts.service_accounts(self._owner, action.spec):
            await self._apply(account)
        await self._secret()
        lost = self._ports.settings.lost_node_toleration
        await self._create(check_pod(self._owner, action.spec, action.revision, action.operation, action.against, lost))

    async def delete_check(self, action: actions.DeleteCheck) -> None:
        """Gone with its log."""
        await self._ports.cluster.delete(POD, self._owner.namespace, action.name, force=action.force)

    # --- pods --------------------------------------------------------------------------------------------------------

    async def apply_children(self, action: actions.ApplyChildren) -> None:
        """Everything but the pods; and what the spec no longer asks for is removed."""
        configs = self._ctx.seen.configs(action.incarnation.job_id)
        await self._surround(action, configs)
        if self._ctx.seen.master is not None and self._ctx.seen.worker is not None and configs:
            await self._drop_configs(configs)

    async def _surround(self, action: actions.ApplyChildren | actions.ApplyPods, configs: frozenset[str]) -> None:
        await self._hold()
        owner, cluster = self._owner, self._ports.cluster
        await self._secret()
        await self._configure(action.incarnation, configs)
        wanted = parts.children(owner, action.desired, self._ports.identity)
        await self._claim(*wanted)
        for manifest in wanted:
            await cluster.apply(manifest)
        kept = {(m["kind"], m["metadata"]["name"]) for m in wanted}
        for kind, name in parts.optional_children(owner):
            if (kind, name) in kept:
                continue
            live = await cluster.get(KINDS[kind], owner.namespace, name)
            if live is not None and manifests.is_made_for(owner, live):
                await cluster.delete(KINDS[kind], owner.namespace, name)
        if owner.hold_uid is None:
            await self._delete_hold()
        else:
            await self._hold_beside(configs)
        self._cache.dependents_at, self._cache.applied_for = None, self._ctx.subject.generation

    async def apply_pods(self, action: actions.ApplyPods) -> None:
        """First what the pods need, then the workers, and the master last: it is what makes a job."""
        new = action.incarnation
        own = self._owner.config(new.job_id, new.revision)
        await self._surround(action, self._ctx.seen.configs(new.job_id) | {own})
        lost = self._ports.settings.lost_node_toleration
        if "worker" in action.roles:
            await self._apply(worker_deployment(self._owner, action.incarnation, action.workers, lost))
        if "master" in action.roles:
            await self._apply(master_deployment(self._owner, action.incarnation, lost))
        if {"master", "worker"} <= set(action.roles):
            await self._drop_configs(frozenset({own}))

    async def _configure(self, incarnation: Incarnation, names: frozenset[str]) -> None:
        """An incarnation's configuration is made once: what is there stays as it is, whatever this version would write."""
        owner, cluster = self._owner, self._ports.cluster
        for name in sorted(names):
            former = name == owner.former_config
            wanted = former_config_map(owner, incarnation) if former else config_map(owner, incarnation)
            wanted["metadata"]["name"] = name
            live = await cluster.get(CONFIG_MAP, owner.namespace, name)
            if live is None:
                await self._create(wanted)
            else:
                self._refuse_stranger(wanted, live)
        if names - {owner.former_config}:
            await self._apply(parallelism_map(owner, incarnation.parallelism))

    async def _drop_configs(self, kept: frozenset[str]) -> None:
        owner, cluster = self._owner, self._ports.cluster
        for name in spare_configs(owner, kept, await cluster.list(CONFIG_MAP, owner.namespace, {JOB: owner.name})):
            await cluster.delete(CONFIG_MAP, owner.namespace, name)

    async def delete_job(self, _: actions.DeleteJob) -> None:
        """Not one that has taken its name in the meantime, and not one that somebody has changed: that is looked at first."""
        job = await self._ports.cluster.get(FLINKJOB, self._owner.namespace, self._owner.name)
        if job is None or job["metadata"]["uid"] != self._owner.uid:
            return
        if job["metadata"]["generation"] != self._ctx.subject.generation:
            return
        with contextlib.suppress(Conflict):
            await self._ports.cluster.delete(FLINKJOB, self._owner.namespace, self._owner.name, seen=job)

    async def scale_down(self, _: actions.ScaleDown) -> None:
        """The master first: nothing may commit any more."""
        for name in (self._owner.master, self._owner.worker):
            await self._scale(name, 0)

    async def force_delete(self, action: actions.ForceDelete) -> None:
        """A Deployment that recreates would wait for them for ever."""
        for name in action.names:
            await self._ports.cluster.delete(POD, self._owner.namespace, name, force=True)

    async def restart_master(self, action: actions.RestartMaster) -> None:
        """A pod of that name never comes again, so deleting twice deletes once."""
        for name in action.names:
            await self._ports.cluster.delete(POD, self._owner.namespace, name)

    async def scale_workers(self, action: actions.ScaleWorkers) -> None:
        """Only the number changes, never the template: a new version of the operator must not restart pods."""
        await self._mark_busy(action.busy)
        await self._scale(self._owner.worker, action.replicas)

    async def apply_parallelism(self, action: actions.ApplyParallelism) -> None:
        """For a master that restarts; then let spare workers go."""
        incarnation = action.incarnation
        await self._hold()
        configs = self._ctx.seen.configs(incarnation.job_id)
        await self._configure(incarnation, configs)
        if self._owner.former_config in configs:
            await self._rewrite_former(incarnation.parallelism)
        await self._mark_busy(action.busy)
        await self._scale(self._owner.worker, action.replicas)

    async def _rewrite_former(self, parallelism: int) -> None:
        name = self._owner.former_config
        live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, name) or {}
        before = str((live.get("data") or {}).get(CONFIG_FILE, ""))
        after = with_parallelism(before, parallelism)
        if after != before:
            await self._ports.cluster.merge(CONFIG_MAP, self._owner.namespace, name, {"data": {CONFIG_FILE: after}})

    async def _scale(self, name: str, replicas: int) -> None:
        live = await self._ports.cluster.get(DEPLOYMENT, self._owner.namespace, name)
        if live is None or not manifests.is_made_for(self._owner, live):
            return
        if live.get("spec", {}).get("replicas") != replicas:
            await self._ports.cluster.merge(DEPLOYMENT, self._owner.namespace, name, {"spec": {"replicas": replicas}})

    async def _mark_busy(self, busy: frozenset[str]) -> None:
        """Tell the ReplicaSet which pods hold part of the job, so that it takes the others."""
        if not busy:
            return
        pods = await self._ports.cluster.list(POD, self._owner.namespace, {JOB: self._owner.name, ROLE: "worker"})
        for pod in pods:
            if not manifests.is_made_for(self._owner, pod):
                continue
            name, ip = pod["metadata"]["name"], pod.get("status", {}).get("podIP")
            cost = "100" if any(_is_at(b, name, ip) for b in busy) else "0"
            if manifests.annotations_of(pod).get(DELETION_COST) != cost:
                patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
                await self._ports.cluster.merge(POD, self._owner.namespace, name, patch)

    async def _hold(self) -> None:
        """Where a savepoint is to be taken on deletion: what is made from here on has the hold as an owner, too."""
        if not self._ctx.deletion_policy.savepoint:
            return
        wanted = hold(self._owner)
        live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, self._owner.hold)
        if live is None:
            await self._create(wanted)
            live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, self._owner.hold)
        if live is not None:
            self._refuse_stranger(wanted, live)
            self._owner = replace(self._owner, hold_uid=live["metadata"]["uid"])

    async def _hold_beside(self, configs: frozenset[str]) -> None:
        """What is not applied again: only its owners change, and no pod."""
        owner = self._owner
        await self._own(SECRET, owner.secrets)
        for name in configs:
            await self._own(CONFIG_MAP, name)
        for name in (owner.master, owner.worker):
            await self._own(DEPLOYMENT, name)

    async def _own(self, kind: Kind, name: str) -> None:
        live = await self._ports.cluster.get(kind, self._owner.namespace, name)
        if live is None or not manifests.is_made_for(self._owner, live):
            return
        meta, ours = live["metadata"], self._owner.references()
        if difference({"ownerReferences": ours}, meta) is None:
            return
        theirs = [r for r in meta.get("ownerReferences") or () if r["uid"] not in {o["uid"] for o in ours}]
        patch = {"metadata": {"ownerReferences": [*ours, *theirs], "resourceVersion": meta["resourceVersion"]}}
        await self._ports.cluster.merge(kind, self._owner.namespace, name, patch)

    async def _delete_hold(self) -> None:
        live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, self._owner.hold)
        if live is not None and manifests.is_made_for(self._owner, live):
            await self._ports.cluster.delete(CONFIG_MAP, self._owner.namespace, self._owner.hold)

    async def _secret(self) -> None:
        """Made once with random values; a value is never changed, one that is missing is added."""
        wanted = parts.secret(self._owner, secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        live = await self._ports.cluster.get(SECRET, self._owner.namespace, self._owner.secrets)
        if live is None:
            await self._create(wanted)
            return
        self._refuse_stranger(wanted, live)
        absent = {key: value for key, value in wanted["data"].items() if not (live.get("data") or {}).get(key)}
        if absent:
            await self._ports.cluster.merge(SECRET, self._owner.namespace, self._owner.secrets, {"data": absent})
            self._cache.token = None

    async def _apply(self, manifest: Manifest) -> None:
        await self._claim(manifest)
        await self._ports.cluster.apply(manifest)

    async def _claim(self, *manifests: Manifest) -> None:
        """None of them takes the name of something that was not made for this FlinkJob."""
        for manifest in manifests:
            live = await self._ports.cluster.get(
                KINDS[manifest["kind"]], self._owner.namespace, manifest["metadata"]["name"]
            )
            if live is not None:
                self._refuse_stranger(manifest, live)

    def _refuse_stranger(self, wanted: Manifest, live: Manifest) -> None:
        if manifests.is_made_for(self._owner, live):
            return
        what = f"{wanted['kind']} {wanted['metadata']['name']}"
        if manifests.labels_of(live).get(JOB) == self._owner.name:
            msg = f"{what} belongs to an earlier FlinkJob {self._owner.name}"
            raise NameTaken(msg)
        msg = f"{what} exists and was not made for this FlinkJob; it is not touched"
        raise NameTaken(msg)

    async def _create(self, manifest: Manifest) -> None:
        try:
            await self._ports.cluster.create(manifest)
        except AlreadyExists:
            await self._claim(manifest)

    # --- the engine --------------------------------------------------------------------------------------------------

    async def stop_with_savepoint(self, action: actions.StopWithSavepoint) -> str:
        """Asking twice under one id stops once."""
        return await self._engine().stop(action.job_id, action.directory, action.trigger_id)

    async def trigger_checkpoint(self, action: actions.TriggerCheckpoint) -> str:
        """Asking twice under one id makes one."""
        return await self._engine().checkpoint(action.job_id, action.trigger_id)

    async def rescale(self, action: actions.Rescale) -> str:
        """Asking twice for one parallelism changes it once."""
        return await self._engine().rescale(action.job_id, action.parallelism, action.trigger_id)

    def _engine(self) -> EngineClient:
        return self._ports.engines(self._owner.namespace, self._owner.name, self._cache.token)

    # --- snapshots and storage ---------------------------------------------------------------------------------------

    async def create_snapshot(self, action: actions.CreateSnapshot) -> None:
        """The name makes it one."""
        await self._create(
            flink_snapshot(
                self._owner,
                action.name,
                trigger=action.trigger,
                kind=action.kind,
                path=action.path,
                revision=action.revision,
            )
        )

    async def delete_snapshot(self, action: actions.DeleteSnapshot) -> None:
        """Its own loop removes the files, then the object."""
        await self._ports.cluster.delete(FLINKSNAPSHOT, self._owner.namespace, action.name)

    async def fence_incarnation(self, action: actions.FenceIncarnation) -> None:
        """Taking a further number does no harm. It is taken where the incarnation writes, wherever an edit points.

        Other settings than its own may open another store, in which a number fences nobody off: there it must be found.
        """
        specs = storage_specs(self._ctx)
        if not specs:
            return
        own, root = specs[0], specs[0].storage.checkpoints

        async def fence(storage: Storage, spec: FlinkJobSpec) -> None:
            if spec is not own and await storage.newest_complete(root, action.job_id) is None:
                raise StorageError(f"{root} answers, but has nothing of the incarnation to fence off")
            await storage.fence(root, action.job_id)

        await ask_storage(self._ports, self._owner.namespace, specs, fence)

    async def fence_predecessors(self, action: actions.FencePredecessors) -> None:
        """They were found with the settings of the spec as it is, and there they write."""
        specs = storage_specs(self._ctx)

        async def fence(job_id: str) -> None:
            await ask_storage(
                self._ports,
                self._owner.namespace,
                specs,
                lambda storage, spec: storage.fence(spec.storage.checkpoints, job_id),
            )

        await together(partial(fence, job_id) for job_id in action.job_ids)

    async def dispose_job_storage(self, action: actions.DisposeJobStorage) -> None:
        """All checkpoints of an incarnation, where it wrote them."""
        specs = disposal_specs(self._ctx, action.revision)
        if not specs:
            msg = "no valid revision says where the storage is"
            raise StorageError(msg)
        root, namespace = specs[0].storage.checkpoints, self._owner.namespace
        op = self._ctx.status.operation
        disposing = op is not None and op.kind == "Delete"
        left = op.deadline - self._ctx.now if op is not None and op.deadline else self._ctx.settings.dispose_timeout
        try:
            async with asyncio.timeout(max(left.total_seconds(), 1.0) if disposing else None):
                await ask_storage(self._ports, namespace, specs, lambda s, _: s.dispose_job(root, action.job_id))
        except TimeoutError as error:
            msg = "checkpoint storage did not answer in the time that the deletion has"
            raise StorageError(msg) from error


def _is_at(worker: str, name: str, ip: str | None) -> bool:
    """Whether an id or address (`10.0.0.1-0`, `10.0.0.1:7079`) is that of a pod.

    >>> _is_at("10.0.0.12-0", "job-worker-x", "10.0.0.1"), _is_at("10.0.0.1-0", "job-worker-x", "10.0.0.1")
    (False, True)
    """
    return any(worker == host or worker.startswith((f"{host}-", f"{host}:")) for host in (name, ip) if host)


_HANDLERS: Mapping[type[Any], Callable[[Any, Any], Awaitable[str | None]]] = {
    actions.AddFinalizer: Actor.add_finalizer,
    actions.RemoveFinalizer: Actor.remove_finalizer,
    actions.RecordRevision: Actor.record_revision,
    actions.PruneRevisions: Actor.prune_revisions,
    actions.TryObjects: Actor.try_objects,
    actions.RunCheck: Actor.run_check,
    actions.DeleteCheck: Actor.delete_check,
    actions.ApplyChildren: Actor.apply_children,
    actions.DeleteJob: Actor.delete_job,
    actions.ApplyPods: Actor.apply_pods,
    actions.ScaleDown: Actor.scale_down,
    actions.ForceDelete: Actor.force_delete,
    actions.RestartMaster: Actor.restart_master,
    actions.ScaleWorkers: Actor.scale_workers,
    actions.ApplyParallelism: Actor.apply_parallelism,
    actions.StopWithSavepoint: Actor.stop_with_savepoint,
    actions.TriggerCheckpoint: Actor.trigger_checkpoint,
    actions.Rescale: Actor.rescale,
    actions.CreateSnapshot: Actor.create_snapshot,
    actions.DeleteSnapshot: Actor.delete_snapshot,
    actions.FenceIncarnation: Actor.fence_incarnation,
    actions.FencePredecessors: Actor.fence_predecessors,
    actions.DisposeJobStorage: Actor.dispose_job_storage,
}
"""Each handler takes the very action it is listed under, which the type of the table cannot say."""
