"""Actions that were refused: which of them fail again until something is changed, and what a person can do. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.reconcile.observation import ActionResult

QUOTA_REMEDY = "Raise the quota of the namespace, or lower the resources or the parallelism"

UNREADABLE = "Unreadable"
"""Code of an action that needs an object which the API server has failed to read for a while."""

REFUSALS = frozenset({"InvalidObject", "Denied", "QuotaExceeded", "NameTaken", UNREADABLE})
"""Codes of actions that cannot be done for what they ask: they fail again until something is changed."""

REMEDIES = {
    "Denied": "The cluster refuses it: look at quota, admission policies and the operator's RBAC",
    "QuotaExceeded": QUOTA_REMEDY,
    "InvalidObject": "The API server rejects an object made from the spec: correct the field it names (podTemplate, resources, ingress, …)",
    "NameTaken": "It is waited for; if it stays, remove or rename it, or give the FlinkJob another name",
    UNREADABLE: "The API server fails over one kind of object: look at its log; a Secret that it cannot decrypt has to be restored, or deleted",
    "KubernetesUnavailable": "It is tried again",
}


def explain(result: ActionResult) -> str:
    """A failed action in words, with what to do."""
    remedy = REMEDIES.get(result.code, "It is tried again")
    return f"{result.action}: {result.message}. {remedy}"
