"""A comparison of the meaning of each operator's state in a snapshot and in the program. It reads no state file.

Snapshots before manifest format 3 have no descriptions. The comparison assumes that their state means the same as in the program, unless
the manifest shows a contradiction. The report mentions this assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.manifest import Manifest, OperatorInfo, OperatorState, SourceState
from penstock.common.errors import RestoreRefused, StateFormatUnsupported
from penstock.functions.function import has_life_cycle
from penstock.graph.state_meaning.compare import compare
from penstock.graph.state_meaning.describe import FUNCTION, meaning_of
from penstock.jobmanager.validation.declared_state import declared_states

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph, OperatorNode

_CLOCKS = frozenset(
    {"window-watermark", "window-removed-until", "interval-join-watermark", "process-watermark", "watermark-generator"}
)
"""Operator states with the event time of an operator. Every snapshot has them. If a restore drops them, no data is lost."""


@dataclass(frozen=True)
class StateChange:
    """Difference that the restore handles and that a user must know. `operator` is the operator's name, or "" for all operators."""

    operator: str
    message: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.message}" if self.operator else self.message


def check_state_meaning(graph: JobGraph, manifest: Manifest) -> list[StateChange]:
    """Return what a restore of the snapshot changes for the operators of the program.

    Raises:
        RestoreRefused: an operator cannot use the state that the snapshot has under its uid.
        StateFormatUnsupported: a newer version of Penstock wrote the state.
    """
    infos = {info.uid: info for info in manifest.operators}
    changes, undescribed = [], []
    for node in graph.operators:
        info = infos.get(node.uid)
        if info is None or not has_state(manifest, node.uid):
            continue
        refusal = _contradiction(node, manifest)
        if not refusal and info.meaning:
            found = compare(info.meaning, meaning_of(node.operation))
            if found.is_newer:
                raise StateFormatUnsupported(
                    f"the state of uid {node.uid!r} in {_name(manifest)} cannot be read: {found.refusal}",
                    remedy="restore it with the version of Penstock that wrote it, or with a newer one",
                    operator=node.name,
                )
            refusal = found.refusal or _moved_function(node, info, manifest)
            changes += [StateChange(node.name, change) for change in found.changes]
        elif not info.meaning:
            undescribed.append(node.uid)
        if refusal:
            raise _refuse(node, manifest, refusal)
    if undescribed:
        listed = ", ".join(map(repr, undescribed))
        changes.append(
            StateChange(
                "",
                f"{_name(manifest)} has format {manifest.format_version}, which does not describe the meaning of state. Penstock "
                f"assumes the meaning that the program declares (operators {listed})",
            )
        )
    return changes


def has_state(manifest: Manifest, uid: str) -> bool:
    """Return whether the snapshot has state, read positions or pending commits of the operator."""
    if _has_keyed_state(manifest, uid) or manifest.commits.get(uid) or _splits(manifest, uid):
        return True
    return bool(_operator_states(manifest, uid))


def _operator_states(manifest: Manifest, uid: str) -> set[str]:
    """Return the names of the operator states that hold anything except event time."""
    parts = manifest.states.get(uid, OperatorState()).operator
    return {name for part in parts for name, value in part.items() if name not in _CLOCKS and _has_items(value)}


def _has_keyed_state(manifest: Manifest, uid: str) -> bool:
    return any(handle.get("files") for handle in manifest.states.get(uid, OperatorState()).keyed)


def _splits(manifest: Manifest, uid: str) -> list[Any]:
    return list(manifest.sources.get(uid, SourceState()).splits)


def _has_items(value: Any) -> bool:
    return bool(value.get("items", value)) if isinstance(value, dict) else bool(value)


def _contradiction(node: OperatorNode, manifest: Manifest) -> str:
    """Return the reason if the operator can certainly not use the state, or an empty string if no reason is known."""
    if _has_keyed_state(manifest, node.uid) and not node.operation.is_keyed:
        return "the state is kept by key, but the operator has no key now"
    if _splits(manifest, node.uid) and node.source is None:
        return "the state has the read positions of a source, but the operator is not a source now"
    if manifest.commits.get(node.uid) and node.sink is None:
        return "the state has the pending commits of a sink, but the operator is not a sink now"
    return ""


def _moved_function(node: OperatorNode, info: OperatorInfo, manifest: Manifest) -> str:
    """Describe a function that declares none of the snapshot's states, because the uid was moved to another operator."""
    new = meaning_of(node.operation)
    if new["kind"] != FUNCTION:
        return ""
    before, after = info.meaning["functions"], new["functions"]
    if before == after:
        return ""
    stored, declared = _operator_states(manifest, node.uid), set[str]()
    if any(map(has_life_cycle, node.operation.user_functions())):
        stored = set()  # the operator states that a function declares are unknown
    if _has_keyed_state(manifest, node.uid):
        keyed = {name for name, state in info.states.items() if state.get("layout") != "timer"}
        declared, is_complete = declared_states(node)
        stored |= keyed if is_complete and not declared & keyed else set()
    if not stored:
        return ""
    return (
        f"it belongs to the function {' and '.join(before)} with the states {_listed(stored)}, and the operator is the "
        f"function {' and '.join(after)} with {f'the states {_listed(declared)}' if declared else 'no state'} now"
    )


def _refuse(node: OperatorNode, manifest: Manifest, refusal: str) -> RestoreRefused:
    return RestoreRefused(
        f"the state of uid {node.uid!r} in {_name(manifest)} does not fit the operator: {refusal}",
        remedy="give the uid back to its former operator, or undo the change. To continue without this state, give this "
        f"operator a new uid, and allow the old state to be dropped: allow_non_restored_state=[{node.uid!r}] "
        f"(--allow-non-restored-state {node.uid})",
        operator=node.name,
        location=node.user_location,
    )


def _name(manifest: Manifest) -> str:
    return f"{manifest.kind} {manifest.checkpoint_id} of job {manifest.job_name!r}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
