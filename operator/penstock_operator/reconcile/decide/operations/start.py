"""Bring an incarnation up, and watch it until it has proved itself; or go back.

An incarnation is *stable* when it is RUNNING and has completed a checkpoint of its own. Until then nothing it wrote
is committed (sinks commit with checkpoints), so that going back to the state before it repeats nothing and loses
nothing. RUNNING alone proves little: a job that cannot write its state runs as well. Whether it has completed one is not
always known here (its master does not answer, it completes one while its pods go): a rollback stops it, fences it
off, and then asks storage what it starts from (`decide.restore.committed_end`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.status import Running, Superseded
from penstock_operator.reconcile.decide.actions import ApplyPods, RecordRevision, ScaleDown, TriggerCheckpoint
from penstock_operator.reconcile.decide.health.causes import cause
from penstock_operator.reconcile.decide.operations.look_back import look_again, told_of_silence
from penstock_operator.reconcile.decide.operations.prepare import let_go, pods_there
from penstock_operator.reconcile.decide.refusals import REFUSALS, explain
from penstock_operator.reconcile.decide.restore.stopping import restart_master, stopped_unasked, suspended_overdue
from penstock_operator.reconcile.decide.spec_diff import args_hash
from penstock_operator.resources.incarnation import DOORS, Incarnation, other_door, worker_count

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.observation import ActionResult


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
        return ctx.wait(f"revision {op.target_revision} cannot be read", blocked="RevisionLost")
    if op.job_id is None:
        same = op.kind == "Recover" and op.restore.kind == "Latest"
        current = ctx.status.running.job_id if same and ctx.status.running else None
        ctx = ctx.with_op(job_id=current or ctx.new_job_id(op.id))
        op = ctx.op
    if op.standby is not None:
        return _start_warm(ctx, _incarnation(ctx, spec))
    strangers = [p for p in ctx.seen.left if p.job_id != op.job_id and not (p.terminating and p.node_lost)]
    if strangers and _left_behind(ctx):
        return ctx.act(ScaleDown(), "removing pods that an earlier start has left")
    if strangers:
        return ctx.wait(f"waiting for pods of the former incarnation to go: {strangers[0].name}")
    incarnation = _incarnation(ctx, spec)
    if _deployed(ctx):
        return _started(ctx, incarnation)
    failure = ctx.failed_action("ApplyPods")
    if failure is not None:
        return _refused(ctx, failure)
    desired = ctx.spec or spec
    return ctx.act(
        ApplyPods(incarnation, desired, worker_count(spec, desired, incarnation.parallelism)), "creating the pods"
    )


def _start_warm(ctx: Context, incarnation: Incarnation) -> Decision:
    """The pods are there; the Deployments are applied as ever, and those of the former incarnation go.

    They are fenced off, so they are not waited for. As many pods as stand by: see `prepare`.
    """
    if _deployed(ctx):
        return _started(ctx, incarnation)
    failure = ctx.failed_action("ApplyPods")
    if failure is not None:
        return _refused(ctx, failure)
    desired = ctx.spec or incarnation.spec
    workers = pods_there(ctx) or worker_count(incarnation.spec, desired, incarnation.parallelism)
    return ctx.act(ApplyPods(incarnation, desired, workers), "handing over to the pods that stand by")


def _refused(ctx: Context, failure: ActionResult) -> Decision:
    """The pods cannot be made. What is wrong with the objects themselves stays wrong: go back, if there is a way."""
    op, why = ctx.op, explain(failure)
    if failure.code == "InvalidObject" and _may_go_back(ctx) and op.fallback_revision != op.target_revision:
        return _roll_back(ctx, why)
    return ctx.wait(why, blocked=failure.code, after=ctx.settings.backoff_first)


def _stuck(ctx: Context) -> bool:
    """The API server refuses the pods of an operation that has stopped the job: the next edit is taken at once.

    Operations that have stopped nothing are abandoned for it (`decide.next_step`); this one holds what the job goes on from.
    """
    return ctx.op.kind in ("Upgrade", "Recover", "Rollback") and ctx.op.blocked in REFUSALS


def _suspend_instead(ctx: Context) -> Decision:
    restore, revision = ctx.op.restore, ctx.op.target_revision
    ctx = ctx.end("Abandoned", "the job is to be suspended")
    ctx = ctx.begin("Suspend", "job.state is suspended", step="Teardown", target_revision=revision, restore=restore)
    return ctx.done()


def _unrecorded_target(ctx: Context) -> RecordRevision | None:
    """A revision that is not stored could not be told any more after another edit."""
    desired = ctx.desired_revision
    if not _stuck(ctx) or ctx.spec is None or desired is None or desired in ctx.seen.revisions or ctx.is_rejected:
        return None
    return RecordRevision(desired, ctx.spec) if ctx.failed_action("RecordRevision") is None else None


def _left_behind(ctx: Context) -> bool:
    """Deployments of an earlier Deploy or Resume, which was given up when only one of them could be made; or of an upgrade whose
    standby was given up after the former incarnation had been fenced off."""
    op = ctx.op
    found = [d for d in (ctx.seen.master, ctx.seen.worker) if d is not None and d.replicas > 0]
    half_made = op.kind in ("Deploy", "Resume") and any(d.job_id != op.job_id for d in found)
    return (half_made or any(d.standby for d in found)) and ctx.failed_action("ScaleDown") is None


def _retarget(ctx: Context) -> Context:
    """If the edit was taken back while the job stopped, go back to what ran; any other edit comes after this one, unless
    this one cannot go on."""
    op, desired, running = ctx.op, ctx.desired_revision, ctx.status.running
    if desired == op.target_revision:
        return ctx
    if _stuck(ctx) and desired in ctx.seen.revisions and not ctx.is_rejected:
        changes = {"target_revision": desired, "target_generation": ctx.subject.generation, "standby": None}
        ctx = ctx.with_op(blocked=None, **changes)
        return ctx.tell("Retargeted", f"{op.target_revision} cannot be started; the spec has changed to {desired}")
    if op.kind != "Upgrade" or op.job_id is not None or op.standby is not None:
        return ctx
    if running is not None and desired == running.revision and running.stable:
        ctx = ctx.with_op(target_revision=desired, target_generation=ctx.subject.generation)
        return ctx.tell("UpgradeReverted", f"the edit was taken back; {desired} is started again")
    return ctx


def _incarnation(ctx: Context, spec: FlinkJobSpec) -> Incarnation:
    op = ctx.op
    current = ctx.spec or spec
    wished = op.target_parallelism if op.kind == "Rollback" and op.target_parallelism else current.job.parallelism
    warm, before = op.standby == op.job_id, ctx.status.running
    takes_over = warm and before is not None and before.job_id != op.job_id
    parallelism = before.parallelism if takes_over and before else min(wished, spec.job.max_parallelism)
    if op.job_id is None or op.restore is None or op.target_revision is None:
        msg = "an incarnation needs job id, restore point and revision"
        raise AssertionError(msg)
    allowed = current.job.allow_non_restored_state
    door = other_door(before.door) if takes_over and before else DOORS[0]
    return Incarnation(op.target_revision, spec, op.job_id, op.restore, parallelism, allowed, warm=warm, door=door)


def _deployed(ctx: Context) -> bool:
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
        args_hash=args_hash(spec),
        started_at=ctx.now,
        restored_from=incarnation.restore,
        warm=incarnation.warm,
        door=incarnation.door,
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
    ctx = ctx.tell("Started", f"{running.revision} starts with parallelism {running.parallelism} from {source}")
    patience = (ctx.spec or spec).rollback.after
    if op.kind == "Rollback":
        patience = max(patience, ctx.settings.rollback_patience)
    return ctx.advance(deadline=ctx.now + patience, job_id=op.job_id, restore=op.restore)


def _retire_predecessor(ctx: Context) -> Context:
    """The incarnation of an earlier FlinkJob that this one goes on from is its own as soon as it has got further than that."""
    op = ctx.op
    if op.kind != "Deploy" or op.stop_job_id is None:
        return ctx
    borrowed = Superseded(job_id=op.stop_job_id, borrowed=True)
    return ctx.with_status(superseded=(*ctx.status.superseded, borrowed))


def watch(ctx: Context) -> Decision:
    """Wait until the incarnation is stable; if it does not become so in time, go back."""
    released = let_go(ctx)
    if released is not None:
        return released
    ctx = look_again(ctx)
    op, running, engine = ctx.op, ctx.status.running, ctx.seen.engine
    if running is None:
        return ctx.end("Abandoned", "what was watched is gone").done()
    ours = engine.reachable and engine.job_id == running.job_id
    stored = ctx.seen.storage.newest
    if stopped_unasked(ctx):
        return ctx.end("Abandoned", "what was watched has been stopped").done()
    completed = (ours and engine.checkpoints.completed > 0) or (stored is not None and stored.job_id == running.job_id)
    if ours and (engine.state == "FINISHED" or (engine.running and completed)):
        return _stable(ctx, running)
    if ours and engine.state in ("FAILED", "CANCELED"):
        said = engine.exception or "no exception was reported"
        return _unstable(ctx, _because(ctx, f"the job is {engine.state}: {said}"))
    mine = (p for p in ctx.seen.pods_of("master") if p.job_id == running.job_id)
    crash = next((p for p in mine if p.restarts >= ctx.settings.crash_restarts and not p.ready), None)
    if crash is not None:
        why = (
            str(crash.trouble)
            if crash.trouble
            else f"its container was restarted {crash.restarts} times{crash.last_end and f' (last: {crash.last_end})'}"
        )
        return _unstable(ctx, _because(ctx, f"the master does not stay up: {why}"))
    if suspended_overdue(ctx) and ctx.failed_action("RestartMaster") is None:
        return restart_master(ctx)
    if ctx.past_deadline:
        state = engine.state if ours else "without an answer from its master"
        checkpoint = _checkpoints(ctx, completed=completed)
        known = ctx.status.last_termination.reason if cause(ctx) and ctx.status.last_termination else None
        troubles = "; ".join(str(t) for t in ctx.seen.troubles if t.reason != known)
        raised = engine.exception if ours else ""
        said = "; ".join(filter(None, (f"not stable in time: the job is {state}, {checkpoint}", raised, troubles)))
        return _unstable(ctx, _because(ctx, said))
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


def _because(ctx: Context, why: str) -> str:
    """What ended its containers comes first: the rest follows from it, and a long text is cut at its end."""
    return f"{cause(ctx)}; {why}" if cause(ctx) else why


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
        return "waiting for the master to know the job"
    return "waiting for the first checkpoint" if engine.running else f"the job is {engine.state}"


def _stable(ctx: Context, running: Running) -> Decision:
    ctx = told_of_silence(ctx)
    op = ctx.op
    finished = ctx.now if ctx.seen.engine.state == "FINISHED" else None
    proved = {"stable": True, "had_checkpoint": True, "finished_at": finished}
    stable = running.model_copy(
        update={**proved, "end_of_input": finished is not None and ctx.seen.engine.end_of_input}
    )
    seconds = round((ctx.now - op.started_at).total_seconds())
    ctx = ctx.tell(f"{op.kind}Succeeded", f"{running.revision} is stable after {seconds} s")
    ctx = ctx.end("Succeeded", f"{running.revision} is stable after {seconds} s")
    kept = ctx.status.rejected if op.kind in ("Rollback", "Recover") else None
    return ctx.with_status(running=stable, stable_revision=running.revision, rejected=kept, error=None).done()


def _unstable(ctx: Context, why: str) -> Decision:
    """Go back if there is a way back; otherwise say what a person has to do and keep looking."""
    op = ctx.op
    if _may_go_back(ctx):
        return _roll_back(ctx, why)
    if ctx.seen.engine.terminal:
        ctx = ctx.failed(f"{op.kind}Failed", why).tell(f"{op.kind}Failed", why, warning=True)
        return ctx.end("Failed", why).done()
    remedy = "It is left as it is and watched. Correct the spec, or what the message names"
    return ctx.wait(f"{why}. {remedy}", blocked=f"{op.kind}Failed")


def _may_go_back(ctx: Context) -> bool:
    op = ctx.op
    spec = ctx.spec or ctx.revision_spec(op.target_revision)
    known = op.kind in ("Upgrade", "Redeploy", "Resume") and op.fallback_revision and op.fallback_restore
    return bool(known) and spec is not None and spec.rollback.enabled


def _has_never_started(ctx: Context) -> bool:
    """Its Secret or image is missing, or no node takes it: then storage need not be asked, which may need that Secret, too."""
    running, masters = ctx.status.running, [p for p in ctx.seen.pods if p.role == "master"]
    if running is None or running.had_checkpoint or not (masters or ctx.seen.refusal):
        return False
    return not any(p.started for p in ctx.seen.pods)


def _roll_back(ctx: Context, why: str) -> Decision:
    op = ctx.op
    rejected = None
    if ctx.spec is not None and ctx.desired_revision == op.target_revision:
        rejected = ctx.rejection("NotStable", why)
    ctx = ctx.failed("NotStable", why).end("Failed", why).with_status(rejected=rejected)
    source = op.fallback_restore.path if op.fallback_restore and op.fallback_restore.path else "empty state"
    where = f"{source}, or from a checkpoint that {op.target_revision} may have completed"
    reason = f"{op.target_revision} is given up ({why}); back to {op.fallback_revision} from {where}"
    ctx = ctx.begin(
        "Rollback",
        reason,
        target_revision=op.fallback_revision,
        target_parallelism=op.fallback_parallelism,
        restore=op.fallback_restore,
        take_newest=True,
        never_started=_has_never_started(ctx),
    )
    return ctx.done()
