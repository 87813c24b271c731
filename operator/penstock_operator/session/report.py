"""The status of a FlinkCluster for users: phase, message, conditions, numbers. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.status.flinkjob_status import Condition
from penstock_operator.resources.flinkcluster import revision_name
from penstock_operator.resources.names import CLUSTER, CLUSTER_REVISION, ROLE

if TYPE_CHECKING:
    from penstock_operator.api.flinkcluster import FlinkClusterStatus
    from penstock_operator.session.context import ClusterContext, RevisionSeen

NAMED = 5
"""Maximum number of FlinkJobs that a message names."""


def reported(ctx: ClusterContext) -> FlinkClusterStatus:
    """Return the decided status with all fields for users."""
    current = ctx.revision(ctx.status.revision)
    phase, stalled, message = _phase(ctx, current)
    numbers = {
        "replicas": current.workers_wanted if current else 0,
        "ready_workers": current.workers_ready if current else 0,
        "workers": f"{current.workers_ready}/{current.workers_wanted}" if current else "",
        "jobs": sum(job.revision is not None for job in ctx.jobs),
        "label_selector": _selector(ctx, current),
    }
    if ctx.session is not None:
        numbers |= {"slots": ctx.session.slots, "free_slots": ctx.session.free_slots}
    elif current is None:
        numbers |= {"slots": 0, "free_slots": 0}
    ready = phase == "Ready"
    found = {
        "Ready": (ready, phase, message),
        "Reconciling": (not ready and not stalled, phase, message),
        "Stalled": (bool(stalled), stalled or "NotStalled", message if stalled else ""),
        "Upgraded": (len(ctx.revisions) == 1, "Upgraded" if len(ctx.revisions) == 1 else "Upgrading", _moves(ctx)),
    }
    conditions = tuple(_condition(ctx, kind, *entry) for kind, entry in found.items())
    updates = {"observed_generation": ctx.generation, "phase": phase, "message": message, "conditions": conditions}
    return ctx.status.model_copy(update={**numbers, **updates})


def _phase(ctx: ClusterContext, current: RevisionSeen | None) -> tuple[str, str, str]:
    """Return the phase, the reason if a user must act, and the message."""
    if ctx.is_deleting:
        waits = any(job.revision is not None for job in ctx.jobs) and ctx.deletes != "Force"
        return "Deleting", "", awaited(ctx) if waits else "the operator removes the pods"
    if ctx.problems:
        return "Degraded", "InvalidSpec", "; ".join(str(p) for p in ctx.problems[:5])
    if ctx.failure:
        return "Degraded", "Refused", ctx.failure
    if current is None:
        return "Pending", "", "the operator creates the pods"
    waiting = next((r for r in ctx.revisions if r.number > current.number), None)
    if waiting is not None:
        text = f"revision {waiting.number} starts next to revision {current.number}: {_missing(waiting)}"
        return "Upgrading", "PodsNotReady" if waiting.trouble else "", text
    if not current.is_ready:
        return "Starting", "PodsNotReady" if current.trouble else "", _missing(current)
    if len(ctx.revisions) > 1:
        only_failed = ctx.status.moving is None and ctx.status.not_moved
        return "Upgrading", "JobsNotMoved" if only_failed else "", _moves(ctx)
    return "Ready", "", f"{current.workers_ready} workers run"


def _missing(revision: RevisionSeen) -> str:
    workers = f"{revision.workers_ready} of {revision.workers_wanted} workers are ready"
    master = "the master is ready" if revision.master_ready else "the master is not ready"
    return f"{master}, {workers}{f'. {revision.trouble}' if revision.trouble else ''}"


def _moves(ctx: ClusterContext) -> str:
    if len(ctx.revisions) <= 1:
        return ""
    parts = [f"{ctx.status.moving} moves"] if ctx.status.moving else []
    waiting = sum(j.revision not in (None, ctx.status.revision) for j in ctx.jobs)
    parts += [f"{waiting} FlinkJobs run in a former revision"]
    parts += [f"{n.job} could not be moved: {n.reason}" for n in ctx.status.not_moved[:3]]
    return "; ".join(parts)


def _selector(ctx: ClusterContext, current: RevisionSeen | None) -> str | None:
    if current is None:
        return None
    return f"{CLUSTER}={ctx.name},{CLUSTER_REVISION}={revision_name(ctx.name, current.number)},{ROLE}=worker"


def _condition(ctx: ClusterContext, kind: str, holds: bool, reason: str, message: str) -> Condition:
    before = next((c for c in ctx.status.conditions if c.type == kind), None)
    status = "True" if holds else "False"
    same = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[: ctx.settings.text_limit],
        observed_generation=ctx.generation,
        last_transition_time=before.last_transition_time if same and before else ctx.now,
    )


def awaited(ctx: ClusterContext) -> str:
    """Describe what a deletion waits for, and how a user ends the wait."""
    names = ", ".join(job.name for job in ctx.jobs[:NAMED])
    more = f" and {len(ctx.jobs) - NAMED} more" if len(ctx.jobs) > NAMED else ""
    if ctx.deletes == "Suspend":
        return (
            f"the deletion waits until these FlinkJobs are suspended with a savepoint: {names}{more}. If one of them cannot take a savepoint, "
            "delete it, or set deletion.jobs to Force"
        )
    return (
        f"the deletion waits for the FlinkJobs that use the cluster: {names}{more}. Delete or suspend them, or set deletion.jobs "
        "to Suspend or Force"
    )
