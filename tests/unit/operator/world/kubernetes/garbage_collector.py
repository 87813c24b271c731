"""Kubernetes' garbage collector for objects whose owners are deleted, in the background or in the foreground.

The rules are those of `attemptToDeleteItem` in Kubernetes' `pkg/controller/garbagecollector`:

- An owner is *solid* while it exists, also during its deletion. It is *dangling* when it does not exist. It is
  *waiting* during
  a foreground deletion.
- An object with a solid owner remains, and loses its references to other owners.
- An object without one is deleted. If its owner waits and it has dependents, the deletion is in the foreground.
- `blockOwnerDeletion` only decides how long an owner waits. It keeps no dependent alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.kubernetes.cluster import FakeCluster, Key

FOREGROUND = "foregroundDeletion"


class GarbageCollector:
    """The garbage collector of one cluster. `collect` runs it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._done = 0
        """The cluster's version after the last complete run."""

    def collect(self) -> None:
        """Run until no object needs an action."""
        while self._done != self._cluster.version:
            self._done = self._cluster.version
            there = list(self._cluster.objects.items())
            uids = {found["metadata"]["uid"]: found for _, found in there}
            for key, found in there:
                if _may_be_due(found, uids):
                    self._attempt(key)

    def _attempt(self, key: Key) -> None:
        found = self._cluster.objects.get(key)
        if found is None:
            return
        if "deletionTimestamp" in found["metadata"]:
            if _waits(found) and not self._dependents(found, blocking=True):
                finalizers = [f for f in found["metadata"]["finalizers"] if f != FOREGROUND]
                self._cluster.change(key, lambda m: m["metadata"].update(finalizers=finalizers))
            return
        references = found["metadata"].get("ownerReferences") or []
        owners = {r["uid"]: self._object(r["uid"]) for r in references}
        solid = [r for r in references if (owner := owners[r["uid"]]) is not None and not _waits(owner)]
        if not references or len(solid) == len(references):
            return
        if solid and found["kind"] == "ControllerRevision":
            return  # it retries forever: the API server accepts no patch of one
        if solid:
            self._cluster.change(key, lambda m: m["metadata"].update(ownerReferences=solid))
            return
        waited_for = any(owner is not None for owner in owners.values())
        self._cluster.remove(*key, foreground=waited_for and bool(self._dependents(found)))

    def _object(self, uid: str) -> Manifest | None:
        return next((m for m in self._cluster.objects.values() if m["metadata"]["uid"] == uid), None)

    def _dependents(self, owner: Manifest, *, blocking: bool = False) -> list[Manifest]:
        uid = owner["metadata"]["uid"]
        return [
            m
            for m in self._cluster.objects.values()
            for r in m["metadata"].get("ownerReferences") or ()
            if r["uid"] == uid and (r.get("blockOwnerDeletion") or not blocking)
        ]


def _may_be_due(found: Manifest, uids: Mapping[str, Manifest]) -> bool:
    """Return whether the object or one of its owners waits or is gone.

    All other objects, which are most, need no action.
    """
    meta = found["metadata"]
    if "deletionTimestamp" in meta:
        return _waits(found)
    owners = (uids.get(reference["uid"]) for reference in meta.get("ownerReferences") or ())
    return any(owner is None or _waits(owner) for owner in owners)


def _waits(owner: Manifest) -> bool:
    """Return whether the owner is being deleted and waits for its dependents."""
    meta = owner["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND in (meta.get("finalizers") or ())
