"""A snapshot goes on in the mode it was taken in: batch mode holds input as state, which streaming mode would never look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.checkpoint.files.manifest import Manifest, OperatorState
from penstock.common.errors import RestoreRefused
from penstock.graph.operations import InBatchMode

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph

HELD = "batch-input"
"""Names of states that hold input begin with it."""


def check_runtime_mode(graph: JobGraph, manifest: Manifest) -> None:
    """
    Raises:
        RestoreRefused: an operator has state of the other mode. What a batch job leaves that was drained is no such state.
    """
    for node in graph.operators:
        keyed, named = _names(manifest, node.uid)
        was_batch = any(name.startswith(HELD) for name in (*keyed, *named))
        is_batch = isinstance(node.operation, InBatchMode)
        if is_batch and node.operation.is_keyed and not node.operation.takes_columns and keyed and not was_batch:
            told = "was taken in streaming mode: in batch mode its timers would fire before the records they wait for"
        elif was_batch and not is_batch and not manifest.is_drained:
            told = "was taken in batch mode: it holds input that in streaming mode nobody would work on"
        else:
            continue
        raise RestoreRefused(
            f"the state of the snapshot {manifest.checkpoint_id} of job {manifest.job_id} {told}",
            remedy="start the job with the execution.runtime-mode that it had, or give the operator another uid and allow its "
            "state to be dropped (--allow-non-restored-state)",
            operator=node.name,
            location=node.user_location,
        )


def _names(manifest: Manifest, uid: str) -> tuple[set[str], set[str]]:
    """Of keyed states, if there is anything in them; of operator states."""
    state = manifest.states.get(uid, OperatorState())
    keyed = {name for handle in state.keyed if handle.get("files") for name in handle.get("states", ())}
    if any(handle.get("files") for handle in state.keyed):
        keyed |= {name for info in manifest.operators if info.uid == uid for name in info.states}
    return keyed, {name for snapshot in state.operator for name in snapshot}
