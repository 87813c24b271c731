"""Execution of one action. Every action is idempotent: it may be executed twice, or stop halfway and be executed
again.

A response does not prove that an action worked, so the next pass observes its effect. The result of an action only
contains whether the call was refused, and the reason.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.errors import Conflict, Denied, NotLeader, OperatorError, SecretMissing, unexpected
from penstock_operator.kube.cluster import CONFIG_MAP, FLINKJOB, FLINKSNAPSHOT, KINDS, POD, REVISION, SECRET
from penstock_operator.reconcile.act import storage
from penstock_operator.reconcile.act.objects import Objects, mark_busy
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.observation import ActionResult
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.secrets import master_of, read_master_tls
from penstock_operator.resources import children as parts
from penstock_operator.resources import program
from penstock_operator.resources.configuration import CONFIG_FILE, config_map, parallelism_map, with_parallelism
from penstock_operator.resources.deployments import check_pod, master_deployment, standby_deployment, worker_deployment
from penstock_operator.resources.names import FINALIZER, JOB, ROLE, TLS_KEYS
from penstock_operator.resources.records import controller_revision, flink_snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.engine.client import EngineClient
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.resources.names import Owner

log = logging.getLogger(__name__)


class Actor:
    """Executor of the actions of one FlinkJob."""

    def __init__(self, ctx: Context, ports: Ports, cache: Cache, report_error: Callable[[Exception], None]) -> None:
        self._ctx, self._ports, self._cache, self._report_error = ctx, ports, cache, report_error
        self._objects = Objects(ctx, ports, cache)

    @property
    def _owner(self) -> Owner:
        return self._objects.owner

    async def act(self, action: actions.Action) -> ActionResult:
        """Execute the action. A refusal is returned as a result and raises no exception."""
        name = type(action).__name__
        try:
            handler = getattr(self, _HANDLERS[type(action)].__name__)  # a subclass may have another one
            request_id = await handler(action)
        except NotLeader:
            raise
        except OperatorError as error:
            log.info("%s/%s: %s: %s", self._owner.namespace, self._owner.name, name, error)
            return ActionResult(name, ok=False, code=error.code, message=str(error))
        except Exception as error:  # a bug: report it like a refusal, and retry
            self._report_error(error)
            return ActionResult(name, ok=False, code=OperatorError.code, message=unexpected(error))
        return ActionResult(name, ok=True, request_id=request_id)

    # --- the FlinkJob ------------------------------------------------------------------------------------------------

    async def add_finalizer(self, _: actions.AddFinalizer) -> None:
        """Add the operator's finalizer, and keep the other finalizers."""
        await self._finalizers(lambda present: [*present, FINALIZER] if FINALIZER not in present else present)

    async def remove_finalizer(self, _: actions.RemoveFinalizer) -> None:
        """Delete the hold, then remove the operator's finalizer. Keep the other finalizers."""
        try:
            await self._objects.delete_hold()
        except (
            Denied
        ) as error:  # end the deletion anyway; `process.orphans` deletes the hold when it has the permission
            log.warning("%s/%s could not be deleted: %s", self._owner.namespace, self._owner.hold, error)
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
        """Create the ControllerRevision. If it exists, it has the same content, because revisions never change."""
        generation = self._ctx.subject.generation
        await self._objects.create(controller_revision(self._owner, action.name, action.spec, generation))

    async def prune_revisions(self, action: actions.PruneRevisions) -> None:
        """Delete old ControllerRevisions."""
        for name in action.names:
            await self._ports.cluster.delete(REVISION, self._owner.namespace, name)

    async def try_objects(self, action: actions.TryObjects) -> None:
        """Apply all objects of the start as a dry run. A refusal does no harm while the old job runs."""
        owner, ports, new = self._owner, self._ports, action.incarnation
        lost = ports.settings.lost_node_toleration
        wanted = [
            *parts.children(owner, action.desired, ports.identity, new),
            config_map(owner, new),
            parallelism_map(owner, new.parallelism),
            worker_deployment(owner, new, action.workers, lost),
            master_deployment(owner, new, lost),
        ]
        await self._check_certificate(new.spec)
        await self._objects.claim(*wanted, parts.secret(owner, "", ""))
        for manifest in [*wanted, *await self._objects.missing_created_once()]:
            await self._objects.check_secrets(manifest)
            await ports.cluster.apply(manifest, dry_run=True)

    async def _check_certificate(self, spec: FlinkJobSpec) -> None:
        """Refuse a revision whose certificate is missing, because its master could not start."""
        name = rest_tls_secret(spec)
        if not name:
            return
        live = await self._ports.cluster.get(SECRET, self._owner.namespace, name)
        if live is None:
            msg = f"the Secret {name} (rest.ssl.secret-name) does not exist"
            raise SecretMissing(msg)
        absent = [key for key in TLS_KEYS if not (live.get("data") or {}).get(key)]
        if absent:
            msg = f"the Secret {name} (rest.ssl.secret-name) has no {' and no '.join(absent)}"
            raise SecretMissing(msg)

    async def run_check(self, action: actions.RunCheck) -> None:
        """Create the check pod. Before the first start, also create the ServiceAccounts and the Secret, which the pod
        needs.
        """
        await self._objects.ensure_hold()
        for account in parts.service_accounts(self._owner, action.spec):
            await self._objects.apply(account)
        await self._objects.ensure_secret()
        lost = self._ports.settings.lost_node_toleration
        if program.files(action.spec):
            wanted = program.check_config_map(self._owner, action.spec, action.operation)
            await self._delete_check_program(self._owner.check(action.operation), unless=wanted["data"])
            await self._objects.create(wanted)
        await self._objects.create(
            check_pod(self._owner, action.spec, action.revision, action.operation, action.against, lost)
        )

    async def delete_check(self, action: actions.DeleteCheck) -> None:
        """Delete the ConfigMap of the check pod, then the pod with its log. If the operator crashes in between, the
        remaining pod shows that the deletion is not complete.
        """
        await self._delete_check_program(action.name)
        await self._ports.cluster.delete(POD, self._owner.namespace, action.name, force=action.force)

    async def _delete_check_program(self, name: str, unless: object = None) -> None:
        """Delete the ConfigMap of a check pod, unless its data equals `unless`. An immutable ConfigMap can only be
        replaced.
        """
        live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, name)
        if live is not None and manifests.is_made_for(self._owner, live) and live.get("data") != unless:
            await self._ports.cluster.delete(CONFIG_MAP, self._owner.namespace, name)

    # --- pods --------------------------------------------------------------------------------------------------------

    async def apply_children(self, action: actions.ApplyChildren) -> None:
        """Apply all objects except the pods, and delete the objects that the spec no longer contains."""
        configs = self._ctx.seen.configs(action.incarnation.job_id)
        await self._apply_dependents(action, configs)
        if self._ctx.seen.master is not None and self._ctx.seen.worker is not None and configs:
            await self._objects.delete_former_configs(configs)

    async def _apply_dependents(
        self, action: actions.ApplyChildren | actions.ApplyPods, configs: frozenset[str]
    ) -> None:
        await self._objects.ensure_hold()
        owner, cluster = self._owner, self._ports.cluster
        await self._objects.ensure_secret()
        await self._objects.configure(action.incarnation, configs)
        wanted = parts.children(owner, action.desired, self._ports.identity, action.incarnation)
        await self._objects.claim(*wanted)
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
            await self._objects.delete_hold()
        await self._objects.restore_owners(configs)
        self._cache.dependents_at, self._cache.applied_for = None, self._ctx.subject.generation

    async def apply_pods(self, action: actions.ApplyPods) -> None:
        """Apply the objects that the pods need, then the workers, and the master last, because it starts the job."""
        new = action.incarnation
        config_name = self._owner.config(new.job_id, new.revision)
        complete, seen = {"master", "worker"} <= set(action.roles), self._ctx.seen
        nothing_runs = seen.replicas == 0 and not (seen.left or seen.standby)
        if complete and nothing_runs:  # first, so that the new ConfigMap fits into a quota
            await self._objects.delete_former_configs(frozenset({config_name}))
        await self._apply_dependents(action, self._ctx.seen.configs(new.job_id) | {config_name})
        lost = self._ports.settings.lost_node_toleration
        if "worker" in action.roles:
            await self._objects.apply(worker_deployment(self._owner, action.incarnation, action.workers, lost))
        if "master" in action.roles:
            await self._objects.apply(master_deployment(self._owner, action.incarnation, lost))
        if complete and not nothing_runs:
            await self._objects.delete_former_configs(frozenset({config_name}))

    async def create_standby(self, action: actions.CreateStandby) -> None:
        """Start an incarnation on standby. First restrict the Services to the running incarnation, and apply the
        master last.
        """
        await self._objects.ensure_hold()
        owner, new, lost = self._owner, action.incarnation, self._ports.settings.lost_node_toleration
        for manifest in (
            *parts.services(owner, action.running),
            *parts.service_accounts(owner, action.desired),
            parts.master_service(owner, new),
        ):
            await self._objects.apply(manifest)
        await self._objects.configure(new, frozenset({owner.config(new.job_id, new.revision)}))
        for deployment in (worker_deployment(owner, new, action.workers, lost), master_deployment(owner, new, lost)):
            await self._objects.apply(standby_deployment(deployment, action.running.job_id))

    async def release_incarnation(self, action: actions.ReleaseIncarnation) -> None:
        """Release the incarnation on standby. See `act.storage`."""
        await storage.release_incarnation(self._ctx, self._ports, action)

    async def delete_job(self, _: actions.DeleteJob) -> None:
        """Delete the FlinkJob. Do nothing if the FlinkJob has changed or another FlinkJob has replaced it. The next
        pass must observe that first.
        """
        job = await self._ports.cluster.get(FLINKJOB, self._owner.namespace, self._owner.name)
        if job is None or job["metadata"]["uid"] != self._owner.uid:
            return
        if job["metadata"]["generation"] != self._ctx.subject.generation:
            return
        with contextlib.suppress(Conflict):
            await self._ports.cluster.delete(FLINKJOB, self._owner.namespace, self._owner.name, seen=job)

    async def scale_down(self, _: actions.ScaleDown) -> None:
        """Scale both Deployments to 0, so that no pod can commit output later. Scale the master first."""
        for name in (self._owner.master, self._owner.worker):
            await self._objects.scale(name, 0)

    async def force_delete(self, action: actions.ForceDelete) -> None:
        """Delete pods without waiting for their node. Otherwise a Deployment with the strategy Recreate would wait
        for them forever.
        """
        for name in action.names:
            await self._ports.cluster.delete(POD, self._owner.namespace, name, force=True)

    async def restart_master(self, action: actions.RestartMaster) -> None:
        """Delete the master's pods. Pod names are unique, so a repeated deletion has no effect."""
        for name in action.names:
            await self._ports.cluster.delete(POD, self._owner.namespace, name)

    async def scale_workers(self, action: actions.ScaleWorkers) -> None:
        """Change the number of workers, but not their template. The template of a new version of the operator would
        restart pods.
        """
        await self._mark_busy(action.busy)
        await self._objects.scale(self._owner.worker, action.replicas)

    async def apply_parallelism(self, action: actions.ApplyParallelism) -> None:
        """Store the parallelism for a master that restarts, then remove spare workers."""
        incarnation = action.incarnation
        await self._objects.ensure_hold()
        configs = self._ctx.seen.configs(incarnation.job_id)
        await self._objects.configure(incarnation, configs)
        if self._owner.former_config in configs:
            await self._update_former_configuration(incarnation.parallelism)
        await self._mark_busy(action.busy)
        await self._objects.scale(self._owner.worker, action.replicas)

    async def _update_former_configuration(self, parallelism: int) -> None:
        name = self._owner.former_config
        live = await self._ports.cluster.get(CONFIG_MAP, self._owner.namespace, name) or {}
        before = str((live.get("data") or {}).get(CONFIG_FILE, ""))
        after = with_parallelism(before, parallelism)
        if after != before:
            await self._ports.cluster.merge(CONFIG_MAP, self._owner.namespace, name, {"data": {CONFIG_FILE: after}})

    async def _mark_busy(self, busy: frozenset[str]) -> None:
        """Mark the pods that run part of the job, so that the ReplicaSet deletes the others first."""
        if not busy:
            return
        pods = await self._ports.cluster.list(POD, self._owner.namespace, {JOB: self._owner.name, ROLE: "worker"})
        mine = [pod for pod in pods if manifests.is_made_for(self._owner, pod)]
        await mark_busy(self._ports.cluster, mine, busy)

    # --- the engine --------------------------------------------------------------------------------------------------

    async def stop_with_savepoint(self, action: actions.StopWithSavepoint) -> str:
        """Stop the job with a savepoint. A repeated request with the same id has no effect."""
        return await (await self._engine()).stop(action.job_id, action.directory, action.trigger_id)

    async def trigger_checkpoint(self, action: actions.TriggerCheckpoint) -> str:
        """Take a checkpoint. A repeated request with the same id has no effect."""
        return await (await self._engine()).checkpoint(action.job_id, action.trigger_id)

    async def rescale(self, action: actions.Rescale) -> str:
        """Rescale the job. A repeated request for the same parallelism has no effect."""
        return await (await self._engine()).rescale(action.job_id, action.parallelism, action.trigger_id)

    async def configure_autoscaler(self, action: actions.ConfigureAutoscaler) -> None:
        """Replace the settings of the autoscaler. A repeated request has no effect."""
        await (await self._engine()).configure_autoscaler(action.job_id, action.keys, action.configuration_id)

    async def _engine(self) -> EngineClient:
        running = self._ctx.status.running
        where = master_of(self._owner.namespace, self._owner.name, running)
        tls = await read_master_tls(self._ports, where.namespace, running) if running else None
        return self._ports.engines(where.namespace, where.name, self._cache.token, tls)

    # --- snapshots and storage ---------------------------------------------------------------------------------------

    async def create_snapshot(self, action: actions.CreateSnapshot) -> None:
        """Create a FlinkSnapshot. Its name prevents a duplicate."""
        await self._objects.create(
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
        """Delete the FlinkSnapshot. The loop of the FlinkSnapshot deletes the files, then the object."""
        await self._ports.cluster.delete(FLINKSNAPSHOT, self._owner.namespace, action.name)

    async def fence_incarnation(self, action: actions.FenceIncarnation) -> None:
        """Fence an incarnation. See `act.storage`."""
        await storage.fence_incarnation(self._ctx, self._ports, action)

    async def fence_predecessors(self, action: actions.FencePredecessors) -> None:
        """Fence the incarnations of earlier FlinkJobs. See `act.storage`."""
        await storage.fence_predecessors(self._ctx, self._ports, action)

    async def dispose_job_storage(self, action: actions.DisposeJobStorage) -> None:
        """Delete the checkpoints of an incarnation. See `act.storage`."""
        await storage.dispose_job_storage(self._ctx, self._ports, action)


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
    actions.CreateStandby: Actor.create_standby,
    actions.ReleaseIncarnation: Actor.release_incarnation,
    actions.ScaleDown: Actor.scale_down,
    actions.ForceDelete: Actor.force_delete,
    actions.RestartMaster: Actor.restart_master,
    actions.ScaleWorkers: Actor.scale_workers,
    actions.ApplyParallelism: Actor.apply_parallelism,
    actions.StopWithSavepoint: Actor.stop_with_savepoint,
    actions.TriggerCheckpoint: Actor.trigger_checkpoint,
    actions.Rescale: Actor.rescale,
    actions.ConfigureAutoscaler: Actor.configure_autoscaler,
    actions.CreateSnapshot: Actor.create_snapshot,
    actions.DeleteSnapshot: Actor.delete_snapshot,
    actions.FenceIncarnation: Actor.fence_incarnation,
    actions.FencePredecessors: Actor.fence_predecessors,
    actions.DisposeJobStorage: Actor.dispose_job_storage,
}
"""Handlers by type of action. Each handler takes an action of its key's type, which the type of this table cannot express."""
