"""The health rules for a running job without an operation, and the reaction to a broken rule. Pure functions.

    rule            broken if                                                       fixed if
    ──────────────  ──────────────────────────────────────────────────────────────  ─────────────────────────────────────
    RestartLoop     the engine has restarted the job `health.restarts` times        RUNNING, and no restart for half of
                    within `health.window`                                          the window
    NoCheckpoint    no checkpoint has completed for `health.checkpointIntervals`    a checkpoint has completed
                    intervals, in any state of the job
    MasterSilent    the master's pod exists, and its REST API has not responded     it responds
                    for `health.silence`

The rules do not apply to a job that the engine has given up. `recovery` decides whether that job is started again.

A broken rule is reported once, by an event and `Stalled`, and a second event reports when it is fixed. If
`health.restart` is set, the pods are also restarted from the newest checkpoint. This helps if a process is broken,
but not if the job or one of its dependencies is broken. The operator cannot distinguish these cases. So the pauses
between two such restarts double, from `health.window` to six hours. They are only reset after the job has been
healthy for a long time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.incarnation import HealthStatus
from penstock_operator.api.types import format_duration
from penstock_operator.reconcile.decide.health.causes import restarts_of
from penstock_operator.reconcile.decide.health.pace import checkpoint_patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec, Health
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.decide.context import Context

LONGEST_PAUSE = timedelta(hours=6)
WELL = timedelta(hours=1)
"""Minimum time that a job must have been healthy before former restarts of its pods are forgotten."""


def with_health(ctx: Context) -> Context:
    """Return the same context with current health in its status, and with events for changes."""
    running, spec, before = ctx.status.running, ctx.effective_spec, ctx.status.health
    if running is None or spec is None or running.finished_at is not None or not spec.health.enabled:
        return ctx if before is None else ctx.with_status(health=None)
    health = _counted(ctx, running, before, spec.health)
    if running.failed_at is not None:  # the job has failed, and `recovery` reports that
        ended = {"broken": None, "message": "", "since": ctx.now} if health.broken else {}
        return ctx.with_status(health=health.model_copy(update=ended))
    ctx = ctx.with_status(health=health)
    if health.broken is not None and _is_still_broken(ctx, spec, health):
        return ctx
    found = next((rule for rule, broken in _RULES.items() if broken(ctx, spec, health)), None)
    if found is not None and found != health.broken:
        return _with_broken_rule(ctx, spec, health, found)
    if found is None and health.broken is not None:
        text = (
            f"the health rule {health.broken} is no longer broken: the job is {ctx.seen.engine.state or 'responding'}"
        )
        ctx = ctx.with_event("HealthRecovered", text, key=f"well/{health.job_id}/{health.broken}/{health.since}")
        return ctx.with_status(health=health.model_copy(update={"broken": None, "message": "", "since": ctx.now}))
    return ctx


def restart_due(ctx: Context) -> bool:
    """Return whether the pods must be restarted from the newest checkpoint now."""
    spec, health, running = ctx.effective_spec, ctx.status.health, ctx.status.running
    if spec is None or health is None or running is None or not (spec.health.enabled and spec.health.restart):
        return False
    if health.broken is None or health.job_id != running.job_id or ctx.status.operation is not None:
        return False
    return health.restarted_at is None or ctx.now >= health.restarted_at + _pause(spec.health, health)


def with_pod_restart(ctx: Context) -> Context:
    """Return the same context with one more counted restart of the pods."""
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


def _with_broken_rule(ctx: Context, spec: FlinkJobSpec, health: HealthStatus, rule: str) -> Context:
    rules, engine = spec.health, ctx.seen.engine
    reason = engine.exception or engine.checkpoints.failure or engine.error
    cause = f": {reason}" if reason else ""
    texts = {
        "RestartLoop": f"the engine has restarted the job {rules.restarts} times within {format_duration(rules.window)}{cause}. "
        "Check the job's exceptions. Correct the job, or the systems that it depends on",
        "NoCheckpoint": f"no checkpoint has completed for {format_duration(checkpoint_patience(spec) or timedelta(0))}; the job is "
        f"{engine.state or 'without its master'}{cause}. Check the job's exceptions and its access to storage.checkpoints",
        "MasterSilent": f"the master's REST API has not responded for {format_duration(rules.silence)}{cause}. Check the master's log "
        "and network policies",
    }
    then = (
        "The operator restarts its pods from the newest checkpoint"
        if rules.restart
        else "health.restart would restart its pods"
    )
    text = ctx.clip(f"{texts[rule]}. {then}")
    well_for = ctx.now - health.since if health.since is not None and health.broken is None else timedelta(0)
    forgotten = {"pod_restarts": 0, "restarted_at": None} if well_for >= max(WELL, 2 * _pause(rules, health)) else {}
    ctx = ctx.with_event(rule, text, warning=True, key=f"broken/{health.job_id}/{rule}/{ctx.now}")
    update = {"broken": rule, "message": text, "since": ctx.now, **forgotten}
    return ctx.with_status(health=health.model_copy(update=update))


def _restart_loop(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    return len(health.restarts_at) >= spec.health.restarts


def _no_checkpoint(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    """Return whether the rule is broken. Return False if the master does not respond, because it may still complete
    checkpoints.
    """
    engine, patience = ctx.seen.engine, checkpoint_patience(spec)
    if ctx.status.running is None or patience is None or not (engine.reachable or engine.absent):
        return False
    return engine.no_checkpoint_for >= patience


def _master_silent(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    engine = ctx.seen.engine
    return not engine.reachable and not engine.absent and engine.silent_for >= spec.health.silence


_RULES: Mapping[str, Callable[[Context, FlinkJobSpec, HealthStatus], bool]] = {
    "RestartLoop": _restart_loop,
    "NoCheckpoint": _no_checkpoint,
    "MasterSilent": _master_silent,
}


def _is_still_broken(ctx: Context, spec: FlinkJobSpec, health: HealthStatus) -> bool:
    """Return whether a broken rule is still broken."""
    engine, rules = ctx.seen.engine, spec.health
    if health.broken == "MasterSilent":
        return not engine.reachable
    if health.broken == "NoCheckpoint":
        silent = not (engine.reachable or engine.absent)
        return silent or _no_checkpoint(ctx, spec, health)
    latest = health.restarts_at[-1] if health.restarts_at else None
    return not engine.running or (latest is not None and ctx.now - latest < rules.window / 2)
