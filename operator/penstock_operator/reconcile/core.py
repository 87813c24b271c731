"""The pure core of a pass: the next step, and the report for users."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.next_step import next_step
from penstock_operator.reconcile.presets.defaults import recorded
from penstock_operator.reconcile.report.status import report

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision


def decide(ctx: Context) -> Decision:
    """Return the next step, with current phase, conditions and other fields for users."""
    decision = next_step(ctx)
    reported = report(ctx, decision).model_copy(update={"git": ctx.git})
    return replace(decision, status=recorded(ctx.status, reported, ctx.desired_revision, ctx.defaults))
