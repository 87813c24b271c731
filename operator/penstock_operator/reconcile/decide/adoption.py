"""A job whose status is gone: what its Deployments say of it, and when nothing may be done at all. Pure.

The status is the operator's only memory. It can be lost with the FlinkJob still there: restored from a backup without its
status subresource, pruned by a CRD of another version, replaced by hand, or written by a later operator in words that this one
does not know. To take a job without memory for a new one would tear down what runs and start it empty.

The Deployments remember the two things that matter: the incarnation (the folder of its checkpoints) and the revision it
was made from. So

    status                      the Deployments                                    next
    ──────────────────────────  ─────────────────────────────────────────────────  ─────────────────────────────────────
    cannot be read in part      anything                                           nothing: `StatusLost`; what cannot be read stays
    an operation this version   anything                                           nothing: `StatusLost`
    does not know
    remembers nothing           none of ours, or left by a start that was given up  it is a new job
    remembers nothing           both run one incarnation of a revision that is      adopted: it goes on as it is, and nothing is
                                stored                                              taken for its beginning
    remembers nothing           anything else: stopped, half made, of an unknown    nothing: `StatusLost`
                                revision

A person ends `StatusLost` by putting the status back, by naming where to start (job.initialSavepointPath with another
job.savepointRedeployNonce), or by giving the state up (job.upgradeMode stateless). The nonces that the spec has when the
status is found lost count as acted on: else the job would be started again from a savepoint of long ago.

What was being done when the status was lost is not known, and the engine may be at it: it may be taking the savepoint with which it
stops. A job that is adopted and then stops with input left has been stopped by that, and not by a person; it goes on as the spec
says, from where it has stopped (`restore.stopping`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.status import Nonces, Restore, Running
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.operations.begin import redeploy_wanted
from penstock_operator.reconcile.decide.spec_diff import args_hash
from penstock_operator.resources.names import savepoint_folder

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import Deployment

REASON = "StatusLost"
_KEPT = "Nothing is touched"
_WAYS = (
    "Put the status back (kubectl edit --subresource=status), or name where to start in job.initialSavepointPath and change "
    "job.savepointRedeployNonce, or give the state up with job.upgradeMode stateless"
)


def recall(ctx: Context) -> Decision | None:
    """What to do about a status that is lost; None if it is not."""
    if ctx.unreadable:
        fields = ", ".join(f"status.{field}" for field in ctx.unreadable)
        return _lost(ctx, f"{fields} cannot be read: another version of the operator wrote it, or somebody edited it")
    op = ctx.status.operation
    if op is not None and op.step not in FLOWS.get(op.kind, ()):
        return _lost(ctx, f"status.operation ({op.kind}, step {op.step}) is of another version of the operator")
    if not _remembers_nothing(ctx):
        return None
    master, worker = ctx.seen.master, ctx.seen.worker
    found = [d for d in (master, worker) if d is not None]
    if not found or _was_given_up(ctx) or _is_decided(ctx):
        return None
    if master is not None and worker is not None and _runs(ctx, master, worker):
        return _adopt(ctx, master, worker)
    known = ", ".join(sorted({f"incarnation {d.job_id} of {d.revision}" for d in found}))
    return _lost(
        ctx, f"the status remembers nothing, but there are Deployments of {known}, which do not run as one job"
    )


def is_lost(ctx: Context) -> bool:
    """Whether the status, as it is, says too little to go on."""
    op = ctx.status.operation
    foreign = op is not None and op.step not in FLOWS.get(op.kind, ())
    return bool(ctx.unreadable) or foreign or _remembers_nothing(ctx)


def _remembers_nothing(ctx: Context) -> bool:
    status = ctx.status
    return status.running is None and status.operation is None and status.next_restore is None


def _was_given_up(ctx: Context) -> bool:
    """The Deployments are what is left of a first start that an edit put an end to; that is remembered."""
    newest = next(iter(ctx.status.history), None)
    return newest is not None and newest.outcome != "Succeeded"


def _is_decided(ctx: Context) -> bool:
    """A person has said where to start, since it was found that nothing is known."""
    told = ctx.status.error is not None and ctx.status.error.reason == REASON
    stateless = ctx.spec is not None and ctx.spec.job.upgrade_mode == "stateless"
    return told and (stateless or redeploy_wanted(ctx))


def _runs(ctx: Context, master: Deployment, worker: Deployment) -> bool:
    both = (master, worker)
    one = len({(d.job_id, d.revision) for d in both}) == 1 and bool(master.job_id)
    alive = all(d.replicas > 0 and not d.deleting and not d.standby for d in both)
    return one and alive and ctx.revision_spec(master.revision) is not None


def _adopt(ctx: Context, master: Deployment, worker: Deployment) -> Decision:
    spec = ctx.revision_spec(master.revision)
    if spec is None:
        msg = "only what has a revision is adopted"
        raise AssertionError(msg)
    running = Running(
        revision=master.revision,
        generation=ctx.subject.generation if master.revision == ctx.desired_revision else 0,
        job_id=master.job_id,
        image=spec.image,
        parallelism=spec.job.parallelism,
        args_hash=args_hash(spec),
        started_at=ctx.now,
        restored_from=Restore(kind="Latest", reason="not known: it was adopted"),
        warm=master.warm,
        door=worker.door,
        had_checkpoint=True,
        adopted_at=ctx.now,
    )
    subject = ctx.subject
    folder = f"{spec.storage.savepoints}/{savepoint_folder(subject.namespace, subject.name, subject.uid)}"
    text = (
        f"the status was lost; {master.revision} runs as incarnation {master.job_id} and is looked after again. Checkpoints of "
        f"incarnations before it are not known any more, and stay; so does a savepoint that was being made, in {folder}"
    )
    ctx = ctx.tell("Adopted", text, warning=True, key=f"adopted/{master.job_id}")
    return ctx.with_status(running=running, nonces=_nonces(ctx), error=None).done()


def _lost(ctx: Context, why: str) -> Decision:
    first = ctx.status.error is None or ctx.status.error.reason != REASON
    text = f"{why}. {_KEPT}. {_WAYS}"
    if first:
        ctx = ctx.failed(REASON, text).tell(REASON, text, warning=True, key=f"lost/{ctx.digest(why)}")
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
