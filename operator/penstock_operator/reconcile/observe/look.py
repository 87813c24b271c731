"""Look at everything a decision needs: cluster, then the job's master, then storage. Reads only.

Which of the reads are fresh, and which may come from a copy, is said in `penstock_operator.reconcile.at_rest`.

What does not answer is recorded as that, and the pass goes on: a master that hangs must not keep the operator from
seeing that its node is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKSNAPSHOT, POD, REVISION, Manifest
from penstock_operator.reconcile.observation import CheckPod, Deployment, Observation
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import flaws_around
from penstock_operator.reconcile.observe.engine import ask_master
from penstock_operator.reconcile.observe.storage import ask_for_late, ask_for_state
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
    """Everything that one decision is based on; with `copy` what is watched comes from there: see `reconcile.at_rest`."""
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
        pods=tuple(p for p in of_job if p.job_id != waiting),
        standby=tuple(p for p in of_job if p.job_id == waiting),
        check=await _check(own_pods, owner, source),
        leaving=manifests.leaving_checks(own_pods),
        revisions=manifests.revisions([r for r in revisions if manifests.is_made_for(owner, r)]),
        snapshots=tuple(manifests.snapshot(s) for s in snapshots),
        last=cache.last,
    )
    seen = _deployments(replace(ctx, seen=seen), ours, ports)
    engine = await ask_master(replace(ctx, seen=seen), ports, cache)
    seen = replace(seen, engine=engine)
    seen = replace(seen, storage=await ask_for_state(replace(ctx, seen=seen), ports))
    if ctx.status.asked_savepoints:
        seen = replace(seen, late=await ask_for_late(replace(ctx, seen=seen), ports))
    around = replace(ctx, seen=seen)
    missing = cache.missing if copy is not None else await flaws_around(around, owner, ours, ports, cache)
    seen = replace(seen, missing=missing)
    generation = ctx.subject.generation
    seen = replace(
        seen, edited=generation != ctx.status.observed_generation or cache.applied_for not in (None, generation)
    )
    return replace(seen, repairs=cache.still_due(seen))


def _standby_of(ctx: Context) -> str | None:
    """Job id of the incarnation that stands by, until it is the one that runs."""
    op, running = ctx.status.operation, ctx.status.running
    waiting = op.standby if op is not None else None
    return None if running is not None and running.job_id == waiting else waiting


def _deployments(ctx: Context, live: list[Manifest], ports: Ports) -> Observation:
    found = {manifests.labels_of(m).get(ROLE): m for m in live}
    master, worker = found.get("master"), found.get("worker")
    running, owner, lost = ctx.status.running, ctx.subject.owner, ports.settings.lost_node_toleration
    incarnation = ctx.running_incarnation if running is not None else None
    seen = ctx.seen
    if master is not None:
        wanted = master_deployment(owner, incarnation, lost) if incarnation else None
        seen = replace(seen, master=_judged(master, wanted))
    if worker is not None:
        count = ctx.running_workers(incarnation.parallelism) if incarnation else 0
        wanted = worker_deployment(owner, incarnation, count, lost) if incarnation else None
        seen = replace(seen, worker=_judged(worker, wanted))
    return seen


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
