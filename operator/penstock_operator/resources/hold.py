"""The hold: what keeps a job's objects there until its savepoint is taken, however its FlinkJob is deleted.

Foreground deletion (Argo CD's default, `kubectl delete --cascade=foreground`) lets the garbage collector delete what a FlinkJob owns
at once, while the FlinkJob itself waits. Neither `blockOwnerDeletion` nor a finalizer stands in its way: the first decides only
how long the owner waits, and of a Deployment with a finalizer the pods are deleted all the same. What does is a second owner
that is not being deleted: the collector then takes the FlinkJob out of the references, and leaves the object.

So where a savepoint is to be taken on deletion, the objects of the job have the hold as their second owner: a ConfigMap that
nobody owns. The ControllerRevisions alone do not: the API server takes no patch of one (it finds `data` changed when it has
written it in its own order), so the collector could not take the FlinkJob out, and the FlinkJob would wait for it for ever. They go at once;
what the spec of the FlinkJob says is enough for a savepoint. The operator deletes it when the job has been stopped, and the collector everything else with it. A hold
whose FlinkJob is gone, because somebody took its finalizer away, is the one thing to remove (`process.orphans`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_operator.resources.names import Owner

HOLD = "hold"
"""Its role."""
_TEXT = (
    "Keeps what belongs to the FlinkJob until the savepoint of its deletion is taken (deletion.savepoint). If the FlinkJob is gone "
    "and the operator, too: delete this ConfigMap, and Kubernetes removes all of it."
)


def hold(owner: Owner) -> dict[str, Any]:
    """A ConfigMap without an owner."""
    metadata = owner.metadata(owner.hold, HOLD)
    del metadata["ownerReferences"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"README": _TEXT}}
