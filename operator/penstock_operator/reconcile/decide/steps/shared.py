"""What several steps need: the spec of a revision, the incarnation to start, rejecting a spec, failed actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from penstock_operator.api.flinkjob import Deletion, FlinkJobSpec, workers_for
from penstock_operator.api.status import Rejected
from penstock_operator.reconcile.decide.actions import Incarnation
from penstock_operator.reconcile.decide.spec_diff import fingerprint
from penstock_operator.reconcile.observe.troubles import QUOTA_REMEDY

if TYPE_CHECKING:
    from penstock_operator.api.status import Running
    from penstock_operator.reconcile.decide.actions import Decision
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import ActionResult


def revision_spec(ctx: Context, name: str | None) -> FlinkJobSpec | None:
    """The spec that a revision was made from; the current one if it is that revision."""
    if name is None:
        return None
    if ctx.spec is not None and name == ctx.desired_revision:
        return ctx.spec
    raw = ctx.seen.revisions.get(name)
    if raw is None:
        return None
    try:
        return FlinkJobSpec.model_validate(raw)
    except ValidationError:
        return None


def effective_spec(ctx: Context) -> FlinkJobSpec | None:
    """The current spec, or while that is invalid the running revision's; the last valid one's if nothing runs."""
    running = ctx.status.running
    if ctx.spec is not None or running is not None:
        return ctx.spec or revision_spec(ctx, running.revision if running else None)
    stored = (revision_spec(ctx, name) for name in reversed(list(ctx.seen.revisions)))
    return next((spec for spec in stored if spec is not None), None)


def deletion_policy(ctx: Context) -> Deletion:
    """What is to become of job and storage."""
    spec = effective_spec(ctx)
    return ctx.deletion or (spec.deletion if spec is not None else Deletion())


def running_incarnation(ctx: Context, running: Running) -> Incarnation | None:
    """What the running pods were made from."""
    spec = revision_spec(ctx, running.revision)
    if spec is None:
        return None
    allowed = ctx.spec.job.allow_non_restored_state if ctx.spec else spec.job.allow_non_restored_state
    return Incarnation(running.revision, spec, running.job_id, running.restored_from, running.parallelism, allowed)


def storage_specs(ctx: Context) -> tuple[FlinkJobSpec, ...]:
    """Whose settings open the storage of the running incarnation, in the order to try them.

    Its own come first: they work whatever is wrong with an edit. If they do not any more, because its Secret has been
    replaced by one of another name, the edit may say what does.
    """
    running = ctx.status.running
    own = revision_spec(ctx, running.revision if running else None)
    if own is None or ctx.spec is None:
        return tuple(s for s in (own, ctx.spec) if s is not None)
    same = own.storage.secret_name == ctx.spec.storage.secret_name and same_store(own, ctx.spec)
    return (own,) if same else (own, ctx.spec)


def disposal_specs(ctx: Context, revision: str | None) -> tuple[FlinkJobSpec, ...]:
    """Whose settings delete the checkpoints of an incarnation of `revision`, in the order to try them.

    Its own come first, then what else opens the same store. Another store has nothing to delete, and says so as if it
    had been deleted.
    """
    running = ctx.status.running
    names = (revision, running.revision if running else None, ctx.status.stable_revision)
    found = [revision_spec(ctx, name) for name in names]
    specs = [spec for spec in (*found, effective_spec(ctx)) if spec is not None]
    distinct = {spec.storage.secret_name: spec for spec in reversed(specs) if same_store(specs[0], spec)}
    return tuple(sorted(distinct.values(), key=specs.index))


def same_store(one: FlinkJobSpec, other: FlinkJobSpec) -> bool:
    """Whether two specs mean the same object store: only the keys to it may differ."""
    return _store(one) == _store(other)


def _store(spec: FlinkJobSpec) -> dict[str, object]:
    return {key: value for key, value in spec.configuration.items() if key.startswith("s3.")}


def worker_count(base: FlinkJobSpec, desired: FlinkJobSpec, parallelism: int) -> int:
    """Worker pods for a parallelism: slots from what runs, spares from the current spec."""
    worker = desired.worker.model_copy(update={"slots": base.worker.slots})
    return workers_for(desired.model_copy(update={"worker": worker}), parallelism)


def running_workers(ctx: Context, parallelism: int) -> int:
    """Worker pods that the running incarnation needs for a parallelism."""
    running = ctx.status.running
    base = revision_spec(ctx, running.revision if running else None) or ctx.spec
    return worker_count(base, ctx.spec or base, parallelism) if base is not None else parallelism


def is_rejected(ctx: Context) -> bool:
    """The spec as it is has been tried and given up."""
    rejected = ctx.status.rejected
    return rejected is not None and ctx.spec is not None and rejected.fingerprint == fingerprint(ctx.spec)


def reject(ctx: Context, reason: str, message: str) -> Decision:
    """Give this spec up until something in it changes; whatever runs is left alone."""
    text = ctx.clip(message)
    op = ctx.op
    ctx = ctx.failed(reason, text).tell(reason, f"{text}. The spec is not tried again until it changes", warning=True)
    ctx = ctx.end("Failed", text)
    if ctx.spec is not None:
        rejected = Rejected(
            fingerprint=fingerprint(ctx.spec),
            revision=op.target_revision or "",
            generation=op.target_generation,
            reason=reason,
            message=text,
            time=ctx.now,
        )
        ctx = ctx.with_status(rejected=rejected)
    return ctx.done()


def storage_silent(ctx: Context, doing: str) -> Decision:
    """Storage has not answered: wait, and say so when it lasts."""
    error = ctx.seen.storage.error
    if not error:
        return ctx.wait(doing)
    remedy = "Look at the operator's access to it (storage.secretName or workload identity) and at s3.endpoint"
    return ctx.wait(f"{doing}: {error}. {remedy}", blocked="StorageUnavailable", after=ctx.settings.backoff_first)


def failed_action(ctx: Context, *names: str) -> ActionResult | None:
    """The result of the action just tried, if it was one of these and failed."""
    last = ctx.seen.last
    return last if last is not None and not last.ok and last.action in names else None


REFUSALS = frozenset({"InvalidObject", "Denied", "QuotaExceeded", "NameTaken"})
"""Codes of actions that cannot be done for what they ask: they fail again until something is changed."""

REMEDIES = {
    "Denied": "The cluster refuses it: look at quota, admission policies and the operator's RBAC",
    "QuotaExceeded": QUOTA_REMEDY,
    "InvalidObject": "The API server rejects an object made from the spec: correct the field it names (podTemplate, resources, ingress, …)",
    "NameTaken": "It is waited for; if it stays, remove or rename it, or give the FlinkJob another name",
    "KubernetesUnavailable": "It is tried again",
}


def explain(result: ActionResult) -> str:
    """A failed action in words, with what to do."""
    remedy = REMEDIES.get(result.code, "It is tried again")
    return f"{result.action}: {result.message}. {remedy}"
