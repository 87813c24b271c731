"""The memory limit of the workers of the next incarnation, if `autoscaling.memory` may replace that of the spec. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.validation import quantity

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context


def with_memory(ctx: Context) -> Context:
    """Return the context whose operation, which starts an incarnation, has the memory limit of the workers. It is decided
    once for each operation. A recovery and a rollback use the memory of the incarnation that they start again.
    """
    op, running = ctx.status.operation, ctx.status.running
    if op is None or op.kind not in ("Deploy", "Upgrade", "Redeploy", "Resume"):
        return ctx
    before = running.worker_memory if running is not None else None
    wanted = _worker_memory(ctx, before)
    if wanted is not None and wanted != before:
        text = f"the workers get {wanted} of memory, as the autoscaler recommends (autoscaling.memory.mode is apply)"
        ctx = ctx.with_event("MemoryApplied", text, key=f"{op.id}/{wanted}")
    return ctx.with_op(worker_memory=wanted, fallback_worker_memory=before)


def _worker_memory(ctx: Context, before: str | None) -> str | None:
    """Return the memory limit of the workers of the next incarnation, or None if it is that of the spec. An edit of the
    limit or of the slots takes precedence, because the recommendation is for the former ones.
    """
    spec, known, running = ctx.spec, ctx.status.autoscaling, ctx.running_spec
    if spec is None or spec.cluster is not None or spec.autoscaling.memory.mode != "apply":
        return None
    memory, own = spec.autoscaling.memory, spec.worker.resources.limits.get("memory")
    found = known.memory.recommended if known is not None and known.memory is not None else before
    if own is None or memory.max is None or found is None:
        return None
    if running is not None and (running.worker.resources, running.worker.slots) != (
        spec.worker.resources,
        spec.worker.slots,
    ):
        return None
    size = max(quantity(memory.min or own), min(quantity(found), quantity(memory.max)))
    return f"{int(size) >> 20}Mi" if size != quantity(own) else None
