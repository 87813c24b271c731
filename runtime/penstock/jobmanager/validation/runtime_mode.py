"""A check that a snapshot is restored in its runtime mode. Batch mode stores input as state, which streaming mode would never read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.checkpoint.files.manifest import Manifest, OperatorState
from penstock.common.errors import RestoreRefused
from penstock.graph.operations import InBatchMode

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph

BATCH_INPUT = "batch-input"
"""Prefix of the names of states that store input."""


def check_runtime_mode(graph: JobGraph, manifest: Manifest) -> None:
    """Check the runtime mode of a snapshot.

    Raises:
        RestoreRefused: an operator has state of the other mode. The state of a drained batch job is allowed.
    """
    for node in graph.operators:
        keyed, named = _names(manifest, node.uid)
        was_batch = any(name.startswith(BATCH_INPUT) for name in (*keyed, *named))
        is_batch = isinstance(node.operation, InBatchMode)
        if is_batch and node.operation.is_keyed and not node.operation.takes_columns and keyed and not was_batch:
            problem = "was taken in streaming mode. In batch mode, its timers would fire before the records that they wait for"
        elif was_batch and not is_batch and not manifest.is_drained:
            problem = "was taken in batch mode. It has buffered input that streaming mode would not process"
        else:
            continue
        raise RestoreRefused(
            f"the state of the snapshot {manifest.checkpoint_id} of job {manifest.job_id} {problem}",
            remedy="start the job with its former execution.runtime-mode. Or give the operator another uid, and allow its state to "
            "be dropped (--allow-non-restored-state)",
            operator=node.name,
            location=node.user_location,
        )


def _names(manifest: Manifest, uid: str) -> tuple[set[str], set[str]]:
    """Return the names of keyed states that are not empty, and of operator states."""
    state = manifest.states.get(uid, OperatorState())
    keyed = {name for handle in state.keyed if handle.get("files") for name in handle.get("states", ())}
    if any(handle.get("files") for handle in state.keyed):
        keyed |= {name for info in manifest.operators if info.uid == uid for name in info.states}
    return keyed, {name for snapshot in state.operator for name in snapshot}
