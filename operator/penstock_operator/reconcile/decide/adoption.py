"""Recovery of a job whose status was lost. Its Deployments show whether the operator may act. Pure functions.

The operator stores its progress only in the status. The status can be lost while the FlinkJob still exists. For example, a backup was
restored without the status subresource, a CRD of another version pruned it, or a user replaced it. A later operator
may also have written values that this version does not know. If the operator treated a job without a status as a new
job, it would stop the running job and start it empty.

The Deployments record the two essential facts: the incarnation (the folder of its checkpoints), and the revision from
which it was created. So the operator acts as follows:

    status                      Deployments                                     action
    ──────────────────────────  ──────────────────────────────────────────────  ──────────────────────────────────────────
    cannot be parsed in part    any                                             none: `StatusLost`; keep unreadable fields
    an unknown operation        any                                             none: `StatusLost`
    names no job                none of this FlinkJob, or left by a start       treat it as a new job
                                that was given up
    names no job                both run one incarnation of a stored revision   adopt the job unchanged; it does not count
                                                                                as newly started
    names no job                one runs such an incarnation, the other one     adopt the job, and create the missing
                                is missing                                      Deployment again
    names no job                anything else: stopped, incomplete, of an       none: `StatusLost`
                                unknown revision
    no `running`, but an        the existing Deployments run one incarnation    adopt the job; continue an operation in
    operation or a restore      that was not stopped before. No operation is    progress
    point                       starting it

The Deployments do not show whether the incarnation has completed a checkpoint. The operator reads this from storage
(`restore.beginning`). Until then it does not start the incarnation again, because a new start could lose its state.

The operator also adopts a FlinkJob that is being deleted if both Deployments run. So it can take the savepoint that
the deletion requests.

A user ends `StatusLost` in one of three ways:

- Restore the status.
- Name the state to start from in job.initialSavepointPath, and change job.savepointRedeployNonce.
- Discard the state with job.upgradeMode stateless.

When the status is found lost, the nonces in the spec count as processed. Otherwise an old nonce could restart the job
from an old savepoint.

The operation at the time of the loss is not known, and the engine may still execute it. For example, it may be taking
the savepoint of a stop. If an adopted job stops before the end of its input, the operator assumes that this
operation stopped it, and not a user. The job continues from there as the spec requests (`restore.stopping`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.api.status.incarnation import Running
from penstock_operator.api.status.operation import Nonces
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.operations.begin import redeploy_wanted
from penstock_operator.reconcile.decide.spec_diff import args_hash
from penstock_operator.resources.incarnation import SERVICE_SUFFIXES
from penstock_operator.resources.names import is_incarnation_of, savepoint_folder

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import Deployment

REASON = "StatusLost"
_CONSEQUENCE = "The operator changes nothing"
_REMEDY = (
    "Do one of these: restore the status (kubectl edit --subresource=status); set job.initialSavepointPath to the state to start "
    "from and change job.savepointRedeployNonce; or set job.upgradeMode to stateless to give up the state"
)


def recover_lost_status(ctx: Context) -> Decision | None:
    """Return the decision about a lost status, or None if the status is not lost."""
    if ctx.unreadable:
        fields = ", ".join(f"status.{field}" for field in ctx.unreadable)
        return _lost(ctx, f"{fields} cannot be read: another version of the operator wrote it, or a user edited it")
    op = ctx.status.operation
    if op is not None and op.step not in FLOWS.get(op.kind, ()):
        return _lost(
            ctx, f"status.operation ({op.kind}, step {op.step}) was written by another version of the operator"
        )
    if not _is_status_empty(ctx):
        return adopted(ctx)
    found = _found(ctx)
    if not found or _was_given_up(ctx) or _is_decided(ctx):
        return None
    taken = adopted(ctx)
    if taken is not None:
        return taken
    known = ", ".join(sorted({f"incarnation {d.job_id} of {d.revision}" for d in found}))
    return _lost(ctx, f"the status is empty, but Deployments of several incarnations exist: {known}")


def adopted(ctx: Context) -> Decision | None:
    """Return the decision to adopt the running incarnation if the status names no incarnation. Return None if no
    incarnation runs.
    """
    status, found = ctx.status, _found(ctx)
    if status.running is not None or not found or (len(found) == 1 and ctx.subject.deleting) or not _runs(ctx, found):
        return None
    op, job_id = status.operation, found[0].job_id
    if job_id in {former.job_id for former in status.superseded}:
        return None
    if op is not None and op.step != "Watch" and job_id in (op.job_id, op.standby):
        return None
    return _adopt(ctx, found[0])


def is_lost(ctx: Context) -> bool:
    """Return whether the status contains too little information to continue."""
    op = ctx.status.operation
    foreign = op is not None and op.step not in FLOWS.get(op.kind, ())
    return bool(ctx.unreadable) or foreign or _is_status_empty(ctx)


def _is_status_empty(ctx: Context) -> bool:
    status = ctx.status
    return status.running is None and status.operation is None and status.next_restore is None


def _was_given_up(ctx: Context) -> bool:
    """Return whether the Deployments are left over from a first start that was given up, as the history records."""
    newest = next(iter(ctx.status.history), None)
    return newest is not None and newest.outcome != "Succeeded"


def _is_decided(ctx: Context) -> bool:
    """Return whether a user has chosen a state to start from since the loss was reported."""
    is_reported = ctx.status.error is not None and ctx.status.error.reason == REASON
    stateless = ctx.spec is not None and ctx.spec.job.upgrade_mode == "stateless"
    return is_reported and (stateless or redeploy_wanted(ctx))


def _found(ctx: Context) -> list[Deployment]:
    """Return the job's Deployments, the master's first. The operator creates a missing Deployment again, as for any
    job."""
    return [d for d in (ctx.seen.master, ctx.seen.worker) if d is not None]


def _runs(ctx: Context, found: list[Deployment]) -> bool:
    known = is_incarnation_of(ctx.subject.namespace, ctx.subject.name, found[0].job_id or "")
    one = len({(d.job_id, d.revision) for d in found}) == 1 and known
    alive = all(d.replicas > 0 and not d.deleting and not d.standby for d in found)
    return one and alive and _made_from(ctx, found[0]) is not None


def _made_from(ctx: Context, deployment: Deployment) -> FlinkJobSpec | None:
    """Return the spec of the incarnation. If its revision is missing during a deletion, return the current spec, which
    is enough to find the storage.
    """
    found = ctx.revision_spec(deployment.revision)
    return ctx.effective_spec if found is None and ctx.subject.deleting else found


def _adopt(ctx: Context, found: Deployment) -> Decision:
    spec, master, worker = _made_from(ctx, found), ctx.seen.master, ctx.seen.worker
    if spec is None:
        msg = "only Deployments with a revision are adopted"
        raise AssertionError(msg)
    argument = master.starts_from if master is not None else None
    running = Running(
        revision=found.revision,
        generation=ctx.subject.generation if found.revision == ctx.desired_revision else 0,
        job_id=found.job_id,
        image=spec.image,
        parallelism=spec.job.parallelism,
        worker_memory=_worker_memory(spec, worker),
        args_hash=args_hash(spec),
        started_at=ctx.now,
        restored_from=argument or Restore(kind="Latest", reason="unknown, because the running job was adopted"),
        warm=master is not None and master.warm,
        checks=master is not None and master.checks,
        service_suffix=worker.service_suffix if worker is not None else SERVICE_SUFFIXES[0],
        cluster=spec.cluster,
        rest_tls=master.rest_tls if master is not None else rest_tls_secret(spec),
        origin_unknown=True,
        adopted_at=ctx.now,
    )
    subject = ctx.subject
    folder = f"{spec.storage.savepoints}/{savepoint_folder(subject.namespace, subject.name, subject.uid)}"
    text = (
        f"the status was lost; {found.revision} runs as incarnation {found.job_id} and the operator manages it again. It no "
        f"longer knows these files and never deletes them: checkpoints of earlier incarnations, and an unfinished savepoint in {folder}"
    )
    ctx = ctx.with_event("Adopted", text, warning=True, key=f"adopted/{found.job_id}")
    nonces = _nonces(ctx) if _is_status_empty(ctx) else ctx.status.nonces
    return ctx.with_status(running=running, nonces=nonces, error=None).done()


def _worker_memory(spec: FlinkJobSpec, worker: Deployment | None) -> str | None:
    """Return the memory limit of the workers if `autoscaling.memory` has replaced that of the spec."""
    live = worker.memory_limit if worker is not None else None
    own = spec.worker.resources.limits.get("memory")
    return live if spec.autoscaling.memory.mode == "apply" and live is not None and live != str(own) else None


def _lost(ctx: Context, reason: str) -> Decision:
    first = ctx.status.error is None or ctx.status.error.reason != REASON
    text = f"{reason}. {_CONSEQUENCE}. {_REMEDY}"
    if first:
        ctx = ctx.failed(REASON, text).with_event(REASON, text, warning=True, key=f"lost/{ctx.digest(reason)}")
        ctx = ctx if ctx.unreadable else ctx.with_status(nonces=_nonces(ctx))
    return ctx.done(after=ctx.settings.resync)


def _nonces(ctx: Context) -> Nonces:
    if ctx.spec is None:
        return ctx.status.nonces
    job = ctx.spec.job
    return Nonces(
        savepoint_trigger=job.savepoint_trigger_nonce,
        checkpoint_trigger=job.checkpoint_trigger_nonce,
        savepoint_redeploy=job.savepoint_redeploy_nonce,
    )
