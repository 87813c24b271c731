"""The upkeep of a running job while an operation waits. Pure functions.

An operation may wait for days: for an image that cannot be pulled, for nodes, for a quota, for a savepoint location.
Most steps leave the running incarnation alone (`leaves_alone`). While such a step waits, the job still needs
everything that it needs at rest:

    problem of the running job                    while the operation waits
    ────────────────────────────────────────────  ──────────────────────────────────────────────────────────────────────
    FAILED, ending for too long, health.restart,  interrupt the operation and recover the job; the operation then starts
    the master's Deployment is gone               again, because the spec still requests it
    a Deployment, a Service, … missing, changed   apply it again, in parallel to the operation
    a snapshot is due or expired                  create or delete it, in parallel to the operation
    a health rule is broken                       report it, next to the reason why the operation waits

An operation that advances is not disturbed, because an upgrade usually replaces a failed job sooner than a recovery
would. An operation counts as waiting when it has reported a problem, or after `Settings.upkeep_patience`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.actions import ApplyPods
from penstock_operator.reconcile.decide.flows import is_waiting, leaves_alone
from penstock_operator.reconcile.decide.health.recovery import with_failure_record
from penstock_operator.reconcile.decide.health.rules import with_health
from penstock_operator.reconcile.decide.operations.begin import recovery
from penstock_operator.reconcile.decide.upkeep import keep_running

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

_INTERRUPTED = frozenset({("Upgrade", "Check"), ("Redeploy", "Verify"), ("Redeploy", "Check")})
"""Steps whose operations start again automatically after the job was recovered. Rescale is missing, because its own
step ends it.
"""


def before_step(ctx: Context) -> Context | Decision:
    """Return the context with current information on the running job, or the recovery that interrupts the operation."""
    if not leaves_alone(ctx.op) or ctx.op.step == "Watch":
        return ctx
    ctx = with_failure_record(ctx)
    if (ctx.op.kind, ctx.op.step) not in _INTERRUPTED or not _is_waiting(ctx):
        return ctx
    reason = f"{ctx.op.kind} waits in step {ctx.op.step}. The operator interrupts it to recover the running job"
    recovered = recovery(ctx.with_event("Interrupted", reason).end("Interrupted", ctx.op.message or reason))
    return ctx if recovered is None else recovered.done()


def after_step(ctx: Context, decision: Decision) -> Decision:
    """Return the decision of a step. If the step waits, add the most urgent housekeeping for the running job."""
    op = decision.status.operation
    if op is None or decision.action is not None or not leaves_alone(op):
        return decision
    ctx = replace(ctx, status=decision.status, events=decision.events)
    if not _is_waiting(ctx):
        return decision
    if op.step != "Watch":  # the step Watch evaluates the incarnation itself
        ctx = with_health(ctx)
    housekeeping = _apply_master_again(ctx) or keep_running(ctx)
    if housekeeping is None:
        return ctx.done(after=decision.requeue)
    pauses = [pause for pause in (housekeeping.requeue, decision.requeue) if pause is not None]
    return replace(housekeeping, requeue=min(pauses, default=None))


def _is_waiting(ctx: Context) -> bool:
    return is_waiting(ctx.op, ctx.now, ctx.settings.upkeep_patience)


def _apply_master_again(ctx: Context) -> Decision | None:
    """Create the master's Deployment of a watched incarnation again. No recovery could do it during this step."""
    running, incarnation, desired = ctx.status.running, ctx.running_incarnation, ctx.spec or ctx.effective_spec
    if ctx.op.step != "Watch" or running is None or incarnation is None or desired is None or ctx.seen.master:
        return None
    if running.finished_at is not None or ctx.failed_action("ApplyPods") is not None:
        return None
    if running.had_checkpoint:
        newest = Restore(kind="Latest", reason="the master's Deployment was deleted")
        incarnation = replace(incarnation, restore=newest)
        ctx = ctx.with_status(running=running.model_copy(update={"restored_from": newest}))
    ctx = ctx.with_event("Repaired", "the master Deployment was missing; the operator applies it again")
    return ctx.done(ApplyPods(incarnation, desired, ctx.running_workers(incarnation.parallelism), roles=("master",)))
