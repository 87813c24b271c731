"""The start of an incarnation. The operator watches it until it is stable, or rolls back.

An incarnation is *stable* when it is RUNNING and has completed a checkpoint. Before that, none of its output is
committed, because sinks commit with checkpoints. So a return to the earlier state neither repeats nor loses output.
RUNNING alone proves little, because a job that cannot write its state is RUNNING too. The operator does not always know
whether a checkpoint was completed. The master may not respond, or may complete a checkpoint while its pods end. So a
rollback stops the incarnation, fences it, and then reads from storage where to start (`decide.restore.committed_end`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.api.status.incarnation import Running
from penstock_operator.api.status.snapshots import Superseded
from penstock_operator.reconcile.decide.actions import ApplyPods, RecordRevision, ScaleDown, TriggerCheckpoint
from penstock_operator.reconcile.decide.health.causes import cause
from penstock_operator.reconcile.decide.operations.look_back import look_again, with_unanswered_search_event
from penstock_operator.reconcile.decide.operations.outage import waited_out
from penstock_operator.reconcile.decide.operations.prepare import release_standby, requested_workers
from penstock_operator.reconcile.decide.operations.worker_memory import with_memory
from penstock_operator.reconcile.decide.refusals import (
    CANNOT_START,
    PODS_STUCK,
    REFUSALS,
    REVISION_LOST,
    explain,
    lost_revision,
    stuck_pods,
)
from penstock_operator.reconcile.decide.restore.stopping import (
    restart_master,
    stopped_without_request,
    suspended_overdue,
)
from penstock_operator.reconcile.decide.spec_diff import args_hash
from penstock_operator.resources.incarnation import SERVICE_SUFFIXES, Incarnation, other_service_suffix, worker_count
from penstock_operator.resources.memory import with_worker_memory

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import ActionResult, Pod


def start(ctx: Context) -> Decision:
    """Create the pods of the new incarnation."""
    if _stuck(ctx) and ctx.spec is not None and ctx.spec.job.state == "suspended":
        return _suspend_instead(ctx)
    unrecorded = _unrecorded_target(ctx)
    if unrecorded is not None:
        return ctx.act(unrecorded)
    ctx = _retarget(ctx)
    op = ctx.op
    spec = ctx.revision_spec(op.target_revision)
    if spec is None or op.restore is None:
        return ctx.wait(lost_revision(op.target_revision), blocked=REVISION_LOST)
    if op.job_id is None:
        same = op.kind == "Recover" and op.restore.kind == "Latest"
        current = ctx.status.running.job_id if same and ctx.status.running else None
        restore = op.restore
        if current is None and restore.kind == "Latest" and restore.path is not None:
            # The path is in the folder of a former incarnation, where the new master does not look.
            restore = restore.model_copy(update={"kind": "Checkpoint"})
        ctx = ctx.with_op(job_id=current or ctx.new_job_id(op.id), restore=restore)
        op = ctx.op
    if op.standby is not None:
        return _start_warm(ctx, new_incarnation(ctx, spec))
    former = wait_for_former_pods(ctx)
    if former is not None:
        return former
    incarnation = new_incarnation(ctx, spec)
    if is_deployed(ctx):
        return _started(ctx, incarnation)
    failure = ctx.failed_action("ApplyPods")
    if failure is not None:
        return _refused(ctx, failure)
    desired = ctx.spec or spec
    return ctx.act(
        ApplyPods(incarnation, desired, worker_count(spec, desired, incarnation.parallelism)), "creating the pods"
    )


def wait_for_former_pods(ctx: Context) -> Decision | None:
    """Return the decision to remove pods of another incarnation and to wait for their end. Return None if no such pod
    is left."""
    op = ctx.op
    former_pods = [p for p in ctx.seen.left if p.job_id != op.job_id and not (p.terminating and p.node_lost)]
    if not former_pods:
        return None
    if _left_behind(ctx):
        return ctx.act(ScaleDown(), "removing the pods of an earlier start")
    if ctx.now - op.step_since > ctx.settings.stuck_pods_timeout:
        return ctx.wait(stuck_pods([p.name for p in former_pods]), blocked=PODS_STUCK)
    return ctx.wait(f"waiting for pods of the former incarnation to end: {former_pods[0].name}")


def _start_warm(ctx: Context, incarnation: Incarnation) -> Decision:
    """Start the incarnation on standby. Its pods exist, and the Deployments are applied normally, which removes the
    former pods.

    The former pods are fenced, so the operator does not wait for them. The number of pods is that of the standby
    pods. See `prepare`.
    """
    if is_deployed(ctx):
        return _started(ctx, incarnation)
    failure = ctx.failed_action("ApplyPods")
    if failure is not None:
        return _refused(ctx, failure)
    desired = ctx.spec or incarnation.spec
    workers = requested_workers(ctx) or worker_count(incarnation.spec, desired, incarnation.parallelism)
    return ctx.act(ApplyPods(incarnation, desired, workers), "handing over to the standby pods")


def _refused(ctx: Context, failure: ActionResult) -> Decision:
    """Return the decision if the API server refuses the objects and nothing runs. Roll back if possible.

    Invalid objects stay invalid, and so do programs that a session cluster refuses. A quota may still count pods that have just ended, and a policy or a name conflict
    may be fixed soon. So the other refusals only lead to a rollback after `refusal_patience`.
    """
    op, reason = ctx.op, explain(failure)
    if failure.code == "EngineUnreachable":
        return ctx.wait(f"waiting for the FlinkCluster: {failure.message}")
    lasting = failure.code in ("InvalidObject", "ProgramRefused") or (
        failure.code in REFUSALS and ctx.now - op.step_since >= ctx.settings.refusal_patience
    )
    if lasting and _can_roll_back(ctx) and op.fallback_revision != op.target_revision:
        return _roll_back(ctx, reason)
    return ctx.wait(reason, blocked=failure.code, after=ctx.settings.backoff_first)


def _stuck(ctx: Context) -> bool:
    """Return whether an operation has stopped the job but cannot create its pods. The next edit then takes effect
    immediately.

    Operations that have stopped nothing are abandoned instead (`decide.next_step`). An operation that is stuck continues,
    because it knows the state from which the job must start.
    """
    return ctx.op.kind in ("Upgrade", "Recover", "Rollback") and ctx.op.blocked in CANNOT_START


def _suspend_instead(ctx: Context) -> Decision:
    restore, revision = ctx.op.restore, ctx.op.target_revision
    ctx = ctx.end("Abandoned", "job.state is suspended")
    ctx = ctx.begin("Suspend", "job.state is suspended", step="Teardown", target_revision=revision, restore=restore)
    return ctx.done()


def _unrecorded_target(ctx: Context) -> RecordRevision | None:
    """Return the action that stores the current revision. Without it, the revision could not be read after another
    edit.
    """
    desired = ctx.desired_revision
    if not _stuck(ctx) or ctx.spec is None or desired is None or desired in ctx.seen.revisions or ctx.is_rejected:
        return None
    return RecordRevision(desired, ctx.spec) if ctx.failed_action("RecordRevision") is None else None


def _left_behind(ctx: Context) -> bool:
    """Return whether Deployments of an earlier attempt exist that must be scaled down.

    The Deployments may belong to a Deploy or Resume that was given up when only one of the two Deployments could be
    created. They may also belong to an upgrade whose standby was given up after the former incarnation had been fenced.
    """
    op = ctx.op
    found = [d for d in (ctx.seen.master, ctx.seen.worker) if d is not None and d.replicas > 0]
    half_made = op.kind in ("Deploy", "Resume") and any(d.job_id != op.job_id for d in found)
    return (half_made or any(d.standby for d in found)) and ctx.failed_action("ScaleDown") is None


def _retarget(ctx: Context) -> Context:
    """Change the target if the edit was reverted while the job stopped, or if the operation is stuck. Other edits cause
    the next operation.
    """
    op, desired, running = ctx.op, ctx.desired_revision, ctx.status.running
    if desired == op.target_revision:
        return ctx
    if _stuck(ctx) and desired in ctx.seen.revisions and not ctx.is_rejected:
        changes = {"target_revision": desired, "target_generation": ctx.subject.generation, "standby": None}
        ctx = with_memory(ctx.with_op(blocked=None, **changes))
        return ctx.with_event(
            "Retargeted", f"{op.target_revision} cannot be started; the spec has changed to {desired}"
        )
    if op.kind != "Upgrade" or op.job_id is not None or op.standby is not None:
        return ctx
    if running is not None and desired == running.revision and running.stable:
        ctx = ctx.with_op(target_revision=desired, target_generation=ctx.subject.generation)
        return ctx.with_event("UpgradeReverted", f"the edit was reverted; {desired} is started again")
    return ctx


def new_incarnation(ctx: Context, spec: FlinkJobSpec) -> Incarnation:
    op = ctx.op
    current = ctx.spec or spec
    # A Deploy has a target if its pods were started before the check has passed.
    chosen = op.target_parallelism if op.kind in ("Rollback", "Deploy") else None
    wished = chosen or ctx.first_parallelism(current)
    warm, before = op.standby == op.job_id, ctx.status.running
    if op.kind == "Recover" and before is not None:  # a later rescale adds workers, if the cluster has capacity
        wished = before.parallelism if current.autoscaling.sets_parallelism else min(wished, before.parallelism)
    takes_over = warm and before is not None and before.job_id != op.job_id
    parallelism = before.parallelism if takes_over and before else min(wished, spec.job.max_parallelism)
    if op.job_id is None or op.restore is None or op.target_revision is None:
        msg = "an incarnation needs job id, restore point and revision"
        raise AssertionError(msg)
    again = op.kind == "Recover"
    allowed = ctx.allowed_to_drop(op.target_revision, spec) if again else current.job.allow_non_restored_state
    service_suffix = other_service_suffix(before.service_suffix) if takes_over and before else SERVICE_SUFFIXES[0]
    memory = before.worker_memory if again and before is not None else op.worker_memory
    return Incarnation(
        op.target_revision,
        with_worker_memory(spec, memory),
        op.job_id,
        op.restore,
        parallelism,
        allowed,
        warm=warm,
        checks=warm and op.kind == "Deploy",
        service_suffix=service_suffix,
    )


def is_deployed(ctx: Context) -> bool:
    op = ctx.op
    pair = (ctx.seen.master, ctx.seen.worker)
    return all(
        d is not None
        and not d.deleting
        and d.job_id == op.job_id
        and d.revision == op.target_revision
        and d.replicas > 0
        and not d.standby
        for d in pair
    )


def _started(ctx: Context, incarnation: Incarnation) -> Decision:
    op, spec, before = ctx.op, incarnation.spec, ctx.status.running
    running = Running(
        revision=incarnation.revision,
        generation=op.target_generation,
        job_id=incarnation.job_id,
        image=spec.image,
        parallelism=incarnation.parallelism,
        worker_memory=before.worker_memory if op.kind == "Recover" and before is not None else op.worker_memory,
        args_hash=args_hash(spec),
        started_at=ctx.now,
        restored_from=incarnation.restore,
        warm=incarnation.warm,
        checks=incarnation.checks,
        service_suffix=incarnation.service_suffix,
        rest_tls=rest_tls_secret(spec),
        cluster=spec.cluster,
        had_checkpoint=incarnation.restore.kind == "Latest",
        adopted_at=before.adopted_at if before and before.job_id == incarnation.job_id else None,
        failures=before.failures if before and op.kind == "Recover" else 0,
    )
    nonces = ctx.status.nonces
    if ctx.spec is not None and op.kind in ("Deploy", "Redeploy"):
        job = ctx.spec.job
        nonces = nonces.model_copy(update={"savepoint_redeploy": job.savepoint_redeploy_nonce})
        if op.kind == "Deploy":
            triggers = {
                "savepoint_trigger": job.savepoint_trigger_nonce,
                "checkpoint_trigger": job.checkpoint_trigger_nonce,
            }
            nonces = nonces.model_copy(update=triggers)
    source = incarnation.restore.path or ("empty" if incarnation.restore.kind == "Fresh" else "its newest checkpoint")
    ctx = _retire_predecessor(ctx.retire(successor=running.job_id))
    same = before is not None and before.job_id == running.job_id
    restarts = ctx.status.restarts if same else 0
    ctx = ctx.with_status(running=running, nonces=nonces, next_restore=incarnation.restore, restarts=restarts)
    ctx = ctx.with_event("Started", f"{running.revision} starts with parallelism {running.parallelism} from {source}")
    return ctx.advance(deadline=ctx.now + _patience(ctx, spec), job_id=op.job_id, restore=op.restore)


def _patience(ctx: Context, target: FlinkJobSpec | None = None) -> timedelta:
    """Return how long an incarnation has to become stable."""
    spec = ctx.spec or target or ctx.effective_spec
    patience = spec.rollback.after if spec is not None else ctx.settings.rollback_patience
    return max(patience, ctx.settings.rollback_patience) if ctx.op.kind == "Rollback" else patience


def _retire_predecessor(ctx: Context) -> Context:
    """Record the earlier FlinkJob's incarnation from which this job continues. Its checkpoints are deleted when this
    job has newer state.
    """
    op = ctx.op
    if op.kind != "Deploy" or op.stop_job_id is None:
        return ctx
    borrowed = Superseded(job_id=op.stop_job_id, borrowed=True)
    return ctx.with_status(superseded=(*ctx.status.superseded, borrowed))


def watch(ctx: Context) -> Decision:
    """Wait until the incarnation is stable. If it does not become stable in time, roll back."""
    released = release_standby(ctx)
    if released is not None:
        return released
    ctx = look_again(ctx)
    op, running, engine = ctx.op, ctx.status.running, ctx.seen.engine
    if running is None:
        return ctx.end("Abandoned", "the new incarnation no longer exists, so it cannot become stable").done()
    ours = engine.reachable and engine.job_id == running.job_id
    stored = ctx.seen.storage.newest
    if stopped_without_request(ctx):
        return ctx.end("Abandoned", "the job was stopped before it became stable").done()
    completed = (ours and engine.checkpoints.completed > 0) or (stored is not None and stored.job_id == running.job_id)
    if ours and (engine.state == "FINISHED" or (engine.running and completed)):
        return _stable(ctx, running)
    if ours and ctx.seen.storage.error:  # the state of the job now says nothing about the revision
        ctx = ctx.with_op(deadline=ctx.now + _patience(ctx), step_since=ctx.now)
        return ctx.wait_for_storage("waiting for the first checkpoint")
    outage = waited_out(ctx, _patience(ctx))
    if outage is not None:
        return outage
    if ours and engine.state == "CANCELED":
        return ctx.end("Abandoned", "a user canceled the job over its REST API").done()
    if ours and engine.state == "FAILED":
        exception = engine.exception or "no exception was reported"
        return _unstable(ctx, _with_cause_first(ctx, f"the job is {engine.state}: {exception}"))
    mine = [p for p in ctx.seen.pods_of("master") if p.job_id == running.job_id]
    crash = next((p for p in mine if p.restarts >= ctx.settings.crash_restarts and not _is_up(p)), None)
    if crash is not None:
        trouble = (
            str(crash.trouble)
            if crash.trouble
            else f"its container was restarted {crash.restarts} times{crash.last_end and f' (last: {crash.last_end})'}"
        )
        return _unstable(ctx, _with_cause_first(ctx, f"the master ends repeatedly: {trouble}"))
    if suspended_overdue(ctx) and ctx.failed_action("RestartMaster") is None:
        return restart_master(ctx)
    if ctx.past_deadline:
        state = engine.state if ours else "without a response from its master"
        checkpoint = _checkpoints(ctx, completed=completed)
        known = ctx.status.last_termination.reason if cause(ctx) and ctx.status.last_termination else None
        troubles = "; ".join(str(t) for t in ctx.seen.troubles if t.reason != known)
        raised = engine.exception if ours else ""
        reason = "; ".join(filter(None, (f"not stable in time: the job is {state}, {checkpoint}", raised, troubles)))
        return _unstable(ctx, _with_cause_first(ctx, reason))
    if (
        ours
        and engine.running
        and op.trigger_id is None
        and ctx.now - op.step_since >= ctx.settings.checkpoint_patience
    ):
        trigger = ctx.digest(op.id, "first-checkpoint")
        return ctx.with_op(trigger_id=trigger).act(TriggerCheckpoint(running.job_id, trigger))
    refusal = ctx.seen.refusal
    if refusal is not None and not engine.running and ctx.now - op.step_since >= ctx.settings.refusal_patience:
        return ctx.wait(str(refusal), blocked=refusal.reason)
    return ctx.wait(_waiting_for(ctx), blocked=op.blocked if op.blocked == f"{op.kind}Failed" else None)


def _is_up(master: Pod) -> bool:
    """Return whether the master may still become ready. Restarts during a storage outage that is over do not count."""
    return master.ready or (master.storage_failed and master.running_since is not None)


def _with_cause_first(ctx: Context, reason: str) -> str:
    """Return the reason with the termination of a container first. The termination is the cause of the other
    problems, and a long text is cut at its end.
    """
    return f"{cause(ctx)}; {reason}" if cause(ctx) else reason


def _checkpoints(ctx: Context, *, completed: bool) -> str:
    if completed:
        return "checkpoints complete"
    failure = ctx.seen.engine.checkpoints.failure
    return f"no checkpoint completed ({failure})" if failure else "no checkpoint completed"


def _waiting_for(ctx: Context) -> str:
    engine = ctx.seen.engine
    if ctx.seen.troubles and not engine.running:
        return str(ctx.seen.troubles[0])
    if cause(ctx) and not engine.running:
        return cause(ctx)
    if not engine.reachable:
        return "waiting for the master"
    if engine.state is None:
        return "waiting until the master has the job"
    return "waiting for the first checkpoint" if engine.running else f"the job is {engine.state}"


def _stable(ctx: Context, running: Running) -> Decision:
    ctx = with_unanswered_search_event(ctx)
    op = ctx.op
    finished = ctx.now if ctx.seen.engine.state == "FINISHED" else None
    proved = {"stable": True, "had_checkpoint": True, "finished_at": finished}
    stable = running.model_copy(
        update={**proved, "end_of_input": finished is not None and ctx.seen.engine.end_of_input}
    )
    seconds = round((ctx.now - op.started_at).total_seconds())
    ctx = ctx.with_event(f"{op.kind}Succeeded", f"{running.revision} is stable after {seconds} s")
    ctx = ctx.end("Succeeded", f"{running.revision} is stable after {seconds} s")
    kept = ctx.status.rejected if op.kind in ("Rollback", "Recover") else None
    return ctx.with_status(running=stable, stable_revision=running.revision, rejected=kept, error=None).done()


def _unstable(ctx: Context, reason: str) -> Decision:
    """Roll back if possible. Otherwise report what a user must do, and continue to watch."""
    op = ctx.op
    if _can_roll_back(ctx):
        return _roll_back(ctx, reason)
    if ctx.seen.engine.terminal:
        ctx = ctx.failed(f"{op.kind}Failed", reason).with_event(f"{op.kind}Failed", reason, warning=True)
        return ctx.end("Failed", reason).done()
    remedy = "The operator keeps these pods and continues to watch the job. Correct the cause, or the spec"
    return ctx.wait(f"{reason}. {remedy}", blocked=f"{op.kind}Failed")


def _can_roll_back(ctx: Context) -> bool:
    op = ctx.op
    spec = ctx.spec or ctx.revision_spec(op.target_revision)
    known = op.kind in ("Upgrade", "Redeploy", "Resume") and op.fallback_revision and op.fallback_restore
    return bool(known) and spec is not None and spec.rollback.enabled


def _has_never_started(ctx: Context) -> bool:
    """Return whether no container has ever run, because a Secret, an image or a node is missing.

    The rollback then does not need to read storage, which may need the same missing Secret.
    """
    running, masters = ctx.status.running, [p for p in ctx.seen.pods if p.role == "master"]
    if running is None or running.may_have_checkpoint or not (masters or ctx.seen.refusal):
        return False
    return not any(p.started for p in ctx.seen.pods)


def _roll_back(ctx: Context, problem: str) -> Decision:
    op = ctx.op
    rejected = None
    if ctx.spec is not None and ctx.desired_revision == op.target_revision:
        rejected = ctx.rejection("NotStable", problem)
    ctx = ctx.failed("NotStable", problem).end("Failed", problem).with_status(rejected=rejected)
    source = op.fallback_restore.path if op.fallback_restore and op.fallback_restore.path else "empty state"
    where = f"{source}, or from a checkpoint that {op.target_revision} may have completed"
    reason = f"{op.target_revision} failed ({problem}); back to {op.fallback_revision} from {where}"
    ctx = ctx.begin(
        "Rollback",
        reason,
        target_revision=op.fallback_revision,
        target_parallelism=op.fallback_parallelism,
        worker_memory=op.fallback_worker_memory,
        restore=op.fallback_restore,
        take_newest=True,
        never_started=_has_never_started(ctx),
    )
    return ctx.done()
