"""Descriptions of decisions as text, for assertions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.reconcile.decide.context import Context
from penstock_operator.reconcile.observation import Observation, Revisions
from tests.unit.operator.contexts import make_context, make_op, make_spec, revision, up

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.decision import Decision


OTHER = make_spec(image="job:2")


def knows(*specs: Any) -> Revisions:
    return Revisions({revision(s): s.to_manifest() for s in (make_spec(), *specs)})


def action(decision: Decision) -> str:
    return type(decision.action).__name__ if decision.action else ""


def step(decision: Decision) -> str:
    op = decision.status.operation
    return f"{op.kind}/{op.step}" if op else ""


def reasons(decision: Decision) -> list[str]:
    return [e.reason for e in decision.events]


def in_step(
    kind: str, name: str, seen: Observation | None = None, *, spec: Any = OTHER, status: Any = None, **op: Any
) -> Context:
    op.setdefault("target_revision", revision(spec))
    op.setdefault("accepted", name == "Check")
    seen = replace(seen or up(), revisions=knows(spec))
    return make_context(spec, seen=seen, operation=make_op(kind, name, **op), **(status or {}))
