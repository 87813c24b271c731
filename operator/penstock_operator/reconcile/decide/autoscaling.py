"""The workers of a job whose engine sets the parallelism (`spec.autoscaling`). Pure functions.

The engine measures and decides. The operator only adds and removes worker pods, and it writes nothing into the spec:

    the engine                                  the operator
    ──────────────────────────────────────────  ──────────────────────────────────────────────────────────────────────
    has other settings than the spec            sends it the section `autoscaling`
    needs more slots than the workers have      adds workers; the engine rescales the job when the slots are available
    has rescaled the job                        records the parallelism, also for a master that restarts
    has needed fewer workers for `SPARE_TIME`   removes workers that run no part of the job
    does not respond, or the job does not run   changes nothing
    waits for slots of pods that cannot start   reports the reason, and keeps the pods; the job keeps its parallelism

A worker is only removed if the engine has reported in the same pass which workers are busy. After a rescale the engine
does not rescale again before its next window of measurements is complete. So an idle worker stays idle until it is gone.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.api.status.autoscaling import Autoscaling
from penstock_operator.engine.autoscaler import RESCALING
from penstock_operator.reconcile.decide.actions import ApplyParallelism, ConfigureAutoscaler, ScaleWorkers
from penstock_operator.reconcile.decide.refusals import explain
from penstock_operator.reconcile.decide.restore.stopping import is_down
from penstock_operator.reconcile.observation import is_at
from penstock_operator.resources.configuration import autoscaler_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.engine.autoscaler import Autoscaler
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

SPARE_TIME = timedelta(seconds=30)
"""Time for which the job must not need a worker before the worker is removed."""
FREE_SLOTS_PATIENCE = timedelta(minutes=2)
"""Time for which a job of a FlinkCluster waits for free slots before the operator reports it."""
NOT_APPLIED = "NotApplied"
"""Reason if the engine refuses the settings of the spec."""
LIMITS = {
    "HOT_KEY": "HotKey",
    "HOT_SUBTASK": "HotSubtask",
    "SPLITS": "SourceSplits",
    "FIXED_PARALLELISM": "FixedParallelism",
    "INEFFECTIVE": "Ineffective",
    "AT_MAX_PARALLELISM": "AtMaxParallelism",
    "BUDGET_SPENT": "PauseBudgetSpent",
    "NO_GAIN": "NoGain",
}
"""Reasons that the engine gives if the job does not get the parallelism that its load needs, with their names in conditions
and events.
"""


def with_autoscaler(ctx: Context) -> Context:
    """Return the context with the decisions of the autoscaler and the parallelism that it has chosen."""
    running, engine, found = ctx.status.running, ctx.seen.engine, ctx.seen.engine.autoscaler
    if running is None or running.finished_at is not None:
        return _at_rest(ctx)
    if ctx.running_spec is None or engine.job_id != running.job_id:
        return ctx
    if not ctx.autoscaling.enabled:
        is_off = not engine.has_autoscaler or (found is not None and found.mode == "disabled")
        return ctx.with_status(autoscaling=None) if is_off and ctx.status.autoscaling is not None else ctx
    if found is None:
        return ctx if engine.has_autoscaler else _without_engine_support(ctx, running)
    if ctx.is_autoscaled:
        ctx = _with_parallelism(ctx, running, found)
    ctx = _with_state(ctx, found)
    return _with_recommendation(ctx, running, found)


def _at_rest(ctx: Context) -> Context:
    """Keep only the parallelism, with which a suspended job starts again."""
    known = ctx.status.autoscaling
    if known is None:
        return ctx
    reason, text = "NOT_RUNNING", "The job does not run."
    at = known.parallelism
    kept = Autoscaling(mode=known.mode, parallelism=at, wanted=at, reason=reason, message=text, memory=known.memory)
    return ctx if known == kept else ctx.with_status(autoscaling=kept)


def _without_engine_support(ctx: Context, running: Running) -> Context:
    """Report that the engine of the image has no autoscaler."""
    text = (
        "the engine of the image has no autoscaler. Use an image with the engine of this operator's version, or set "
        "autoscaling.enabled to false. The job keeps its parallelism"
    )
    at = running.parallelism
    state = Autoscaling(
        mode="unavailable",
        parallelism=at,
        wanted=at,
        reason="NOT_SUPPORTED",
        message=text,
        limited="NotSupported",
        limited_message=text,
    )
    if ctx.status.autoscaling == state:
        return ctx
    key = f"{running.job_id}/NotSupported"
    return ctx.with_event("AutoscalingLimited", text, warning=True, key=key).with_status(autoscaling=state)


def configure_autoscaler(ctx: Context) -> Decision | None:
    """Return the decision to send the section `autoscaling` of the spec to the running job, or None.

    The engine returns the id of the last settings that it received. A master that has restarted returns no id, so the
    operator sends the settings again.
    """
    running, spec, found, engine = ctx.status.running, ctx.running_spec, ctx.seen.engine.autoscaler, ctx.seen.engine
    if running is None or spec is None or ctx.spec is None or found is None or engine.job_id != running.job_id:
        return None
    keys, wanted = _wanted_settings(ctx, spec)
    if _has_settings(ctx, found, wanted) or ctx.failed_action("ConfigureAutoscaler") is not None:
        return None
    is_change = bool(found.configuration_id) or (found.mode == "disabled") != (not keys)
    if is_change:
        text = "the running job gets the new settings of spec.autoscaling, without a restart"
        ctx = ctx.with_event("AutoscalingConfigured", text, key=f"{running.job_id}/{ctx.subject.generation}/{wanted}")
    return ctx.done(ConfigureAutoscaler(running.job_id, keys, wanted))


def _wanted_settings(ctx: Context, spec: FlinkJobSpec) -> tuple[dict[str, str], str]:
    """Return the keys of the autoscaler for the running job, and their id."""
    keys = autoscaler_configuration(spec, ctx.autoscaling)
    return keys, _id_of(ctx, keys)


def _id_of(ctx: Context, keys: Mapping[str, str]) -> str:
    return ctx.digest(json.dumps(keys, sort_keys=True), length=16)


def _has_settings(ctx: Context, found: Autoscaler, wanted: str) -> bool:
    running = ctx.status.running
    start = ctx.seen.revisions.spec(running.revision) if running is not None else None
    if not ctx.autoscaling.enabled:
        return found.mode == "disabled"
    if found.configuration_id is None and start is not None:
        return wanted == _id_of(ctx, autoscaler_configuration(start, start.autoscaling))
    return found.configuration_id == wanted


def _with_parallelism(ctx: Context, running: Running, found: Autoscaler) -> Context:
    """Record the parallelism of the engine. It is limited, because the response comes from the job's own process."""
    spec = ctx.running_spec
    chosen = min(max(1, found.requested), spec.job.max_parallelism if spec is not None else running.parallelism)
    if chosen == running.parallelism:
        return ctx
    cause = next((one for one in found.decisions if one.reason in RESCALING and one.wanted != one.current), None)
    text = f"the engine has rescaled the job: {running.parallelism} → {chosen}"
    key = f"{running.job_id}/{running.parallelism}→{chosen}/{cause.since if cause is not None else ctx.now}"
    ctx = ctx.with_event("Autoscaled", f"{text}. {cause.message}" if cause is not None else text, key=key)
    return ctx.with_status(running=running.model_copy(update={"parallelism": chosen}))


def _with_state(ctx: Context, found: Autoscaler) -> Context:
    before, running = ctx.status.autoscaling, ctx.status.running
    if running is None:
        return ctx
    limited, text = _limit(ctx, found) or (None, "")
    if before is not None and (before.limited, before.wanted) == (limited, found.wanted):
        text = before.limited_message
    elif limited is not None:
        key = f"{running.job_id}/{limited}/{found.wanted}/{ctx.now:%Y-%m-%dT%H}"  # at most one event an hour
        ctx = ctx.with_event("AutoscalingLimited", f"{limited}: {text}", warning=True, key=key)
    spare = None
    if ctx.is_autoscaled and ctx.seen.worker is not None and ctx.seen.worker.replicas > needed_workers(ctx, found):
        spare = before.spare_since if before is not None and before.spare_since is not None else ctx.now
    state = Autoscaling(
        mode=found.mode,
        parallelism=running.parallelism,
        wanted=found.wanted,
        reason=found.reason,
        message=ctx.clip(found.message),
        slots_available=found.slots_available,
        limited=limited,
        limited_message=ctx.clip(text),
        stored=before.stored if before is not None else None,
        spare_since=spare,
        memory=found.memory or (before.memory if before is not None else None),
        inputs=found.inputs,
        decisions=found.decisions,
    )
    return ctx.with_status(autoscaling=state)


def _limit(ctx: Context, found: Autoscaler) -> tuple[str, str] | None:
    """Return why the job does not get the parallelism that it needs, and the explanation."""
    refused = ctx.failed_action("ConfigureAutoscaler")
    if refused is not None:
        return NOT_APPLIED, explain(refused)
    before, spec = ctx.status.autoscaling, ctx.running_spec
    was_refused = before is not None and before.limited == NOT_APPLIED
    if (
        before is not None
        and was_refused
        and spec is not None
        and not _has_settings(ctx, found, _wanted_settings(ctx, spec)[1])
    ):
        return NOT_APPLIED, before.limited_message
    if found.reason in LIMITS:
        return LIMITS[found.reason], found.message
    if found.needed <= found.current or not ctx.is_autoscaled:
        return None
    running, waiting = ctx.status.running, found.decisions[0] if found.decisions else None
    if running is not None and running.cluster is not None:
        if waiting is None or ctx.now - waiting.since < FREE_SLOTS_PATIENCE:
            return None
        remedy = "Raise worker.replicas, or the maximum in worker.autoscaling, of the FlinkCluster"
        return "NoFreeSlots", f"{found.message} {remedy}. The job keeps parallelism {found.current}"
    failure = ctx.failed_action("ScaleWorkers")
    if failure is not None:
        return failure.code, explain(failure)
    pods = (p.trouble for p in ctx.seen.pods_of("worker") if p.trouble is not None and not p.ready)
    trouble = next(pods, ctx.seen.worker.trouble if ctx.seen.worker is not None else None)
    if trouble is None:
        return None
    return trouble.reason, f"{found.message} {trouble}. The job keeps parallelism {found.current}"


def _with_recommendation(ctx: Context, running: Running, found: Autoscaler) -> Context:
    """Report a recommended parallelism, at most once an hour."""
    if found.mode != "recommend" or found.wanted == found.current or found.reason not in RESCALING:
        return ctx
    text = f"the autoscaler recommends parallelism {found.wanted} instead of {found.current}. {found.message}"
    key = f"{running.job_id}/recommends/{found.current}/{found.wanted}/{ctx.now:%Y-%m-%dT%H}"
    return ctx.with_event("AutoscalerRecommends", text, key=key)


def needed_workers(ctx: Context, found: Autoscaler) -> int:
    """Return the number of worker pods for the parallelism that the engine needs, within the limits of the spec."""
    spec = ctx.running_spec
    if spec is None:
        return ctx.running_workers(found.requested)
    highest = ctx.autoscaling.max or spec.job.max_parallelism
    return ctx.running_workers(min(max(1, found.needed), highest))


def adjust_workers(ctx: Context) -> Decision | None:
    """Return the decision to add or remove workers or to store the parallelism, or None."""
    running, worker, found, state = (
        ctx.status.running,
        ctx.seen.worker,
        ctx.seen.engine.autoscaler,
        ctx.status.autoscaling,
    )
    if not ctx.is_autoscaled or running is None or worker is None or found is None or state is None:
        return None
    if running.cluster is not None:  # the FlinkCluster adds workers (`session.workers`)
        return None
    if worker.deleting or worker.job_id != running.job_id or is_down(ctx) or not ctx.seen.engine.running:
        return None
    needed = needed_workers(ctx, found)
    if worker.replicas < needed:
        if ctx.failed_action("ScaleWorkers") is not None:
            return None
        text = f"adding workers: {worker.replicas} → {needed}. {found.message}"
        key = f"{running.job_id}/workers/{worker.replicas}→{needed}/{ctx.now:%Y-%m-%dT%H}"
        return ctx.with_event("AddingWorkers", text, key=key).done(ScaleWorkers(needed))
    incarnation, last = ctx.running_incarnation, ctx.seen.last
    if incarnation is None or ctx.failed_action("ApplyParallelism") is not None:
        return None
    if state.stored != running.parallelism:
        if last is not None and last.ok and last.action == "ApplyParallelism":
            stored = state.model_copy(update={"stored": running.parallelism})
            return ctx.with_status(autoscaling=stored).done(after=ctx.settings.progress)
        return ctx.done(ApplyParallelism(incarnation, worker.replicas))
    kept = _workers_kept(ctx, found, needed)
    if kept is None or kept >= worker.replicas:
        return None
    text = f"removing workers that run no part of the job: {worker.replicas} → {kept}"
    ctx = ctx.with_event("RemovingWorkers", text, key=f"{running.job_id}/idle/{state.spare_since}/{kept}")
    return ctx.done(ApplyParallelism(incarnation, kept, ctx.seen.engine.busy_workers))


def _workers_kept(ctx: Context, found: Autoscaler, needed: int) -> int | None:
    """Return the number of workers to keep, or None if no worker may be removed now.

    A ReplicaSet removes pods that are not ready first, also if they run part of the job. So all busy pods must be ready.
    """
    state, busy = ctx.status.autoscaling, ctx.seen.engine.busy_workers
    if state is None or state.spare_since is None or ctx.now - state.spare_since < SPARE_TIME:
        return None
    if not busy or found.reason in RESCALING:
        return None
    pods = [p for p in ctx.seen.pods_of("worker") if any(is_at(one, p.name, p.ip) for one in busy)]
    if not pods or not all(p.ready and not p.terminating for p in pods):
        return None
    return max(needed, len(pods))
