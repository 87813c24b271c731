"""The hold: an object that keeps a job's other objects until its savepoint is taken, however its FlinkJob is deleted.

In a foreground deletion, the garbage collector immediately deletes the objects that the FlinkJob owns. The FlinkJob
itself waits. Foreground deletion is the default of Argo CD, and `kubectl delete --cascade=foreground` requests it.
Two obvious mechanisms do not prevent the deletion:

- `blockOwnerDeletion` only controls how long the owner waits.
- A finalizer on a Deployment does not protect its pods.

A second owner that is not being deleted prevents the deletion. The collector then removes the FlinkJob from the owner
references, and keeps the object. So if a savepoint is required on deletion, the job's objects have the hold as their
second owner. The hold is a ConfigMap without an owner.

ControllerRevisions do not have the hold as an owner. The API server rejects every patch of a ControllerRevision,
because it compares `data` with a version that has another order of keys. So the collector could not remove the FlinkJob
from the references, and the FlinkJob would wait forever. ControllerRevisions are deleted immediately, and the spec of
the FlinkJob is enough to take the savepoint.

The operator deletes the hold when the job has stopped. The collector then deletes all other objects. If a user
removes the finalizer of the FlinkJob, its hold remains. `process.orphans` deletes such holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_operator.resources.names import Owner

HOLD = "hold"
"""Role of the hold."""
_TEXT = (
    "Keeps the objects of the FlinkJob until the savepoint of its deletion is taken (deletion.savepoint). If neither the FlinkJob nor "
    "the operator exists any more, delete this ConfigMap. Kubernetes then removes the objects."
)


TRACKED_BY = "app.kubernetes.io/instance"
"""Label by which Argo CD recognizes the objects of an application. It prunes objects with this label that have no
owner and are not in the repository.
"""


def hold(owner: Owner) -> dict[str, Any]:
    """Return a ConfigMap without an owner, and without the label by which Argo CD would prune it."""
    metadata = owner.metadata(owner.hold, HOLD)
    del metadata["ownerReferences"], metadata["labels"][TRACKED_BY]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"README": _TEXT}}
