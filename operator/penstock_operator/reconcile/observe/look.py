"""Observation of everything that a decision needs: the cluster, then the job's master, then storage. It only reads.

`penstock_operator.reconcile.at_rest` defines which reads must be fresh and which may use the copy.

If a system does not respond, the observation records that, and the pass continues. So the operator notices a lost node
even if the master on that node hangs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKSNAPSHOT, POD, REVISION, Manifest
from penstock_operator.reconcile.cache import WantedDeployments
from penstock_operator.reconcile.observation import CheckPod, Deployment, Observation
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import flaws_around
from penstock_operator.reconcile.observe.engine import query_master, without_checkpoint
from penstock_operator.reconcile.observe.session import missing_record, observe_session
from penstock_operator.reconcile.observe.storage import read_late_savepoints, read_state
from penstock_operator.resources.deployments import master_deployment, worker_deployment
from penstock_operator.resources.names import APPLIED, INCARNATION, JOB, ROLE, Owner

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.kube.watched import WatchedObjects
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports


LOG_BYTES = 256 * 1024


async def observe(ctx: Context, ports: Ports, cache: Cache, copy: WatchedObjects | None = None) -> Observation:
    """Return the complete input of one decision. If `copy` is given, watched objects are read from it. See
    `reconcile.at_rest`.
    """
    owner, source = ctx.subject.owner, copy or ports.cluster
    mine = {JOB: owner.name}
    deployments, pods, revisions, snapshots = await asyncio.gather(
        source.list(DEPLOYMENT, owner.namespace, mine),
        source.list(POD, owner.namespace, mine),
        source.list(REVISION, owner.namespace, mine),
        source.list(FLINKSNAPSHOT, owner.namespace, mine),
    )
    ours = [d for d in deployments if manifests.is_made_for(owner, d)]
    own_pods = [p for p in pods if manifests.is_made_for(owner, p)]
    of_job = [manifests.pod(p) for p in own_pods if manifests.labels_of(p).get(ROLE) in ("master", "worker")]
    waiting = _standby_of(ctx)
    seen = Observation(
        foreign=manifests.foreign([*deployments, *pods], owner.uid),
        ownerless=manifests.ownerless(deployments, owner.uid),
        pods=tuple(p for p in of_job if p.job_id != waiting),
        standby=tuple(p for p in of_job if p.job_id == waiting),
        check=await _check(own_pods, owner, source) or await _check_by_master(ctx, own_pods, source),
        leaving=manifests.leaving_checks(own_pods),
        revisions=manifests.revisions([r for r in revisions if manifests.is_made_for(owner, r)]),
        snapshots=tuple(manifests.snapshot(s) for s in snapshots),
        last=cache.last,
    )
    if ctx.is_in_cluster:
        seen = await observe_session(replace(ctx, seen=seen), ports, cache, fresh=copy is None)
    else:
        seen = _deployments(replace(ctx, seen=seen), ours, ports, cache)
    engine = await query_master(replace(ctx, seen=seen), ports, cache)
    waited = without_checkpoint(ctx, engine, cache, ports.monotonic())
    seen = replace(seen, engine=replace(engine, no_checkpoint_for=waited))
    seen = replace(seen, storage=await read_state(replace(ctx, seen=seen), ports))
    if ctx.status.requested_savepoints:
        seen = replace(seen, late=await read_late_savepoints(replace(ctx, seen=seen), ports))
    around = replace(ctx, seen=seen)
    if ctx.is_in_cluster:
        missing = missing_record(around, cache)
    else:
        missing = cache.missing if copy is not None else await flaws_around(around, owner, ours, ports, cache)
    seen = replace(seen, missing=missing)
    generation = ctx.subject.generation
    seen = replace(
        seen, edited=generation != ctx.status.observed_generation or cache.applied_for not in (None, generation)
    )
    return replace(seen, repairs=cache.ineffective_repairs(seen))


def _standby_of(ctx: Context) -> str | None:
    """Return the job id of the incarnation on standby. Return None when it has become the running incarnation."""
    op, running = ctx.status.operation, ctx.status.running
    waiting = op.standby if op is not None else None
    return None if running is not None and running.job_id == waiting else waiting


def _deployments(ctx: Context, live: list[Manifest], ports: Ports, cache: Cache) -> Observation:
    found = {manifests.labels_of(m).get(ROLE): m for m in live}
    master, worker = found.get("master"), found.get("worker")
    wanted = _wanted(ctx, ports, cache) if found else None
    seen = ctx.seen
    if master is not None:
        seen = replace(seen, master=_judged(master, wanted.master if wanted else None))
    if worker is not None:
        seen = replace(seen, worker=_judged(worker, wanted.worker if wanted else None))
    return seen


def _wanted(ctx: Context, ports: Ports, cache: Cache) -> WantedDeployments | None:
    """Return the required Deployments. Create them again only if their input has changed."""
    incarnation = ctx.running_incarnation
    if incarnation is None:
        return None
    owner, lost = ctx.subject.owner, ports.settings.lost_node_toleration
    made_from = (owner, incarnation, ctx.running_workers(incarnation.parallelism))
    if cache.wanted is None or cache.wanted.made_from != made_from:
        master, worker = (
            master_deployment(owner, incarnation, lost),
            worker_deployment(owner, incarnation, made_from[2], lost),
        )
        cache.wanted = WantedDeployments(made_from, master, worker)
    return cache.wanted


def _judged(live: Manifest, wanted: Manifest | None) -> Deployment:
    view = manifests.deployment(live)
    if wanted is None or manifests.annotations_of(wanted).get(INCARNATION) != view.job_id:
        return view
    same = manifests.annotations_of(wanted).get(APPLIED) == manifests.annotations_of(live).get(APPLIED)
    return replace(view, drift=manifests.drift(wanted, live), same_made=same)


async def _check(pods: list[Manifest], owner: Owner, source: Cluster | WatchedObjects) -> CheckPod | None:
    found = [
        p for p in pods if manifests.labels_of(p).get(ROLE) == "check" and "deletionTimestamp" not in p["metadata"]
    ]
    if not found:
        return None
    newest = max(found, key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["name"]))
    if not manifests.check_has_ended(newest):
        return manifests.check_pod(newest, None)
    log = await source.log(owner.namespace, newest["metadata"]["name"], MAIN_CONTAINER, LOG_BYTES)
    return manifests.check_pod(newest, log)


async def _check_by_master(ctx: Context, pods: list[Manifest], source: Cluster | WatchedObjects) -> CheckPod | None:
    """Return the master's pod of a first deployment that checks its own program."""
    op = ctx.status.operation
    if op is None or (op.kind, op.step) != ("Deploy", "Check") or op.standby is None:
        return None
    mine = [p for p in pods if _is_master_of(p, op.standby) and not manifests.pod(p).over]
    if not mine:
        return None
    newest = max(mine, key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["name"]))
    log = None
    if manifests.pod(newest).started:
        log = await source.log(ctx.subject.namespace, newest["metadata"]["name"], MAIN_CONTAINER, LOG_BYTES)
    return manifests.check_by_master(newest, log, op.id, ctx.now)


def _is_master_of(manifest: Manifest, job_id: str) -> bool:
    labels = manifests.labels_of(manifest)
    ours = labels.get(ROLE) == "master" and labels.get(INCARNATION) == job_id
    return ours and "deletionTimestamp" not in manifest["metadata"]
