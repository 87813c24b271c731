"""A comparison of the SQL plans of a snapshot and of a program, node by node. Only nodes with state are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.jobmanager.validation.state_meaning import StateChange, has_state

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest
    from penstock.graph.job_graph import JobGraph

_SHOWN = 300
"""Maximum length of a shown node in characters."""


def compare_plans(manifest: Manifest, graph: JobGraph, plans: Mapping[str, Any]) -> list[StateChange]:
    """Return for each SQL node with state whether a restore keeps its state, drops it, or starts the node without state.

    Args:
        plans: plans of the program, like `Manifest.plans`.
    """
    before, after = _nodes(manifest.plans), _nodes(plans)
    stored = {uid: node for uid, node in before.items() if has_state(manifest, uid)}
    stateful = {node.uid for node in graph.operators if node.operation.is_keyed or node.source is not None}
    kept = [uid for uid in stored if uid in after]
    dropped = {uid: node for uid, node in stored.items() if uid not in after}
    empty = {uid: node for uid, node in after.items() if uid in stateful and uid not in before}
    found = [StateChange(_text(after[uid]), "SQL: the state is kept, because the node is the same") for uid in kept]
    for uid, node in dropped.items():
        successor = _counterpart(node, empty)
        why = "the new plan has no such node" if successor is None else f"the new plan has {_text(successor)} instead"
        found.append(StateChange(_text(node), f"SQL: the state of uid {uid} is dropped, because {why}"))
    for node in empty.values():
        former = _counterpart(node, dropped)
        why = "the snapshot has no such node" if former is None else f"the snapshot has {_text(former)} instead"
        found.append(StateChange(_text(node), f"SQL: the node starts without state, because {why}"))
    return found


def _nodes(plans: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = plans.get("nodes", {})
    return {uid: node for uid, node in found.items() if isinstance(node, dict)} if isinstance(found, dict) else {}


def _counterpart(node: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the only other node of the same kind, or None."""
    found = [other for other in others.values() if other.get("kind") == node.get("kind")]
    return found[0] if len(found) == 1 else None


def _text(node: Mapping[str, Any]) -> str:
    return str(node.get("description") or node.get("kind"))[:_SHOWN]
