"""Whether a job that nobody is changing gets anywhere, and what is done if it does not. Pure.

    rule            broken when                                                     whole again when
    ──────────────  ──────────────────────────────────────────────────────────────  ─────────────────────────────────────
    RestartLoop     the engine has restarted the job `health.restarts` times        RUNNING, and none for half of that time
                    within `health.window`
    NoCheckpoint    none has completed for `health.checkpointIntervals` intervals,  one has completed
                    whatever the state of the job
    MasterSilent    the master's pod is there, and its REST API has not answered    it answers
                    for `health.silence`

A job that the engine has given up is not judged: whether it is started again is a question of `recovery`, which in turn has no say here.
A broken rule is told once, by an event and `Stalled`, and once more when it is whole. With `health.restart` the pods are restarted from
the newest checkpoint as well, which helps where a process is broken and not the job or what it depends on. As nobody knows which of them it
is, the pauses between two such restarts double, from `health.window` to six hours, and are forgotten only after the job has been well for
long.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status import HealthStatus
from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.health.causes import restarts_of
from penstock_operator.reconcile.decide.health.pace import checkpoint_interval, checkpoint_window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec, Health
    from penstock_operator.api.status import Running
    from penstock_operator.reconcile.decide.context import Context

LONGEST_PAUSE = timedelta(hours=6)
WELL = timedelta(hours=1)
"""So long at least a job must have been well for former restarts of its pods to be forgotten."""


def watched(ctx: Context) -> Context:
    """The same context with what is known of the job's health brought up to date, and with events of what has changed."""
    running, spec, before = ctx.status.running, ctx.effective_spec, ctx.status.health
    if running is None or spec is None or running.finished_at is not None or not spec.health.enabled:
        return ctx if before is None else ctx.with_status(health=None)
    health = _counted(ctx, running, before, spec.health)
    if running.failed_at is not None:  # it is at its end, for which `recovery` has the words
        ended = {"broken": None, "message": "", "since": ctx.now} if health.broken else {}
        return ctx.with_status(health=health.model_copy(update=ended))
    ctx = ctx.with_status(health=health)
    if health.broken is not None and _stays(ctx, spec, health):
        return ctx
    found = next((rule for rule, broken in _RULES.items() if broken(ctx, spec, health)), None)
    if found is not None and found != health.broken:
        return _told(ctx, spec, health, found)
    if found is None and health.broken is not None:
        text = f"{health.broken} is over: the job is {ctx.seen.engine.state or 'answering'} again"
        ctx = ctx.tell("HealthRecovered", text, key=f"well/{health.job_id}/{health.broken}/{health.since}")
        return ctx.with_status(health=health.model_copy(update={"broken": None, "message": "", "since": ctx.now}))
    return ctx


def restart_due(ctx: Context) -> bool:
    """The pods are to be restarted from the newest checkpoint now."""
    spec, health, running = ctx.effective_spec, ctx.status.health, ctx.status.running
    if spec is None or health is None or running is None or not (spec.health.enabled and spec.health.restart):
        return False
    if health.broken is None or health.job_id != running.job_id or ctx.status.operation is not None:
        return False
    return health.restarted_at is None or ctx.now >= health.restarted_at + _pause(spec.health, health)


def restarted(ctx: Context) -> Context:
    """The same context with one more restart of the pods counted."""
    health = ctx.status.health
    if health is None:
        return ctx
    counted = {"pod_restarts": health.pod_restarts + 1, "restarted_at": ctx.now}
    return ctx.with_status(health=health.model_copy(update=counted))


def _pause(rules: Health, health: HealthStatus) -> timedelta:
    doublings = min(max(health.pod_restarts, 1) - 1, 16)
    return min(rules.window * (1 << doublings), LONGEST_PAUSE)


def _counted(ctx: Context, running: Running, before: HealthStatus | None, rules: Health) -> HealthStatus:
    known = ctx.seen.engine.reachable and ctx.seen.engine.job_id == running.job_id
    if before is None or before.job_id != running.job_id:
        fresh = HealthStatus(job_id=running.job_id, restarts=restarts_of(ctx, running), since=ctx.now)
        kept = {"pod_restarts": before.pod_restarts, "restarted_at": before.restarted_at} if before else {}
        return fresh.model_copy(update=kept)
    count = restarts_of(ctx, running) if known else before.restarts
    grown = count - before.restarts if count >= before.restarts else count
    times = [*before.restarts_at, *[ctx.now] * min(grown, rules.restarts)]
    recent = tuple(at for at in times if at > ctx.now - rules.window)[-rules.restarts :]
    if count == before.restarts and recent == before.restarts_at:
        return before
    return before.model_copy(update={"restarts": count, "restarts_at": recent})


def _told(ctx: Context, spec: FlinkJobSpec, health: HealthStatus, rule: str) -> Context:
    rules, engine = spec.health, ctx.seen.engine
    why = engine.exception or engine.checkpoints.failure or engine.error
    cause = f": {why}" if why else ""
    texts = {
        "RestartLoop": f"the engine has restarted the job {rules.restarts} times within {format_duration(rules.window)}{cause}. "
        "Look at the job's exceptions; correct the job, or what it depends on",
        "NoCheckpoint": f"no checkpoint has completed for {format_duration(_patience(ctx, spec) or timedelta(0))}; the job is "
        f"{engine.state or 'without its master'}{cause}. Look at the job's exceptions and at its access to storage.checkpoints",
        "MasterSilent": f"the master's REST API has not answered for {format_duration(rules.silence)}{cause}. Look at the master's log, "
        "and at network policies",
    }
    then = (
        "Its pods are restarted from the newest checkpoint"
        if rules.restart
        else "health.restart would restart its pods"
    )
    text = ctx.clip(f"{texts[rule]}. {then}")
    well_for = ctx.now - health.since if health.since is not None and health.broken is None else timedelta(0)
    forgotten = {"pod_restarts": 0, "restarted_at": None} if well_for >= max(WELL, 2 * _pause(rules, health)) else {}
    ctx = ctx.tell(rule, text, warning=True, key=f"broken/{health.job_id}/{rule}/{ctx.now}")
    update = {"broken": rule, "message": text, "since": ctx.now, **forgotten}
    return ctx.with_status(health=health.model_copy(update=update))


def _restart_loop(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    return len(health.restarts_at) >= spec.health.restarts


def _no_checkpoint(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    """A master that does not answer may complete them all the same."""
    running, engine, patience = ctx.status.running, ctx.seen.engine, _patience(ctx, spec)
    if running is None or patience is None or not (engine.reachable or engine.absent):
        return False
    points, newest = engine.checkpoints, ctx.status.last_checkpoint
    known = [running.started_at]
    if engine.job_id == running.job_id and points.latest_at is not None:
        known.append(points.latest_at)
    if newest is not None and newest.job_id == running.job_id and newest.time is not None:
        known.append(newest.time)
    return ctx.now - max(known) > patience


def _patience(ctx: Context, spec: FlinkJobSpec) -> timedelta | None:
    """Never less than what `CheckpointHealthy` allows."""
    interval, window = checkpoint_interval(spec), checkpoint_window(spec)
    return max(interval * spec.health.checkpoint_intervals, window) if interval and window else None


def _master_silent(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    engine = ctx.seen.engine
    return not engine.reachable and not engine.absent and engine.silent_for >= spec.health.silence


_RULES: Mapping[str, Callable[[Context, FlinkJobSpec, HealthStatus], bool]] = {
    "RestartLoop": _restart_loop,
    "NoCheckpoint": _no_checkpoint,
    "MasterSilent": _master_silent,
}


def _stays(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    """A broken rule is not whole yet."""
    engine, rules = ctx.seen.engine, spec.health
    if health.broken == "MasterSilent":
        return not engine.reachable
    if health.broken == "NoCheckpoint":
        silent = not (engine.reachable or engine.absent)
        return silent or _no_checkpoint(ctx, spec, health)
    latest = health.restarts_at[-1] if health.restarts_at else None
    return not engine.running or (latest is not None and ctx.now - latest < rules.window / 2)
