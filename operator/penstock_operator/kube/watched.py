"""A copy of some objects of the API, built from the events of the watch streams.

The copy is never certain. It is some seconds old, and does not contain the operator's last write. An object that was
deleted while a stream was broken remains in the copy until `correct_copy` compares it with a fresh list. So the operator
must not change anything based on the copy alone. `penstock_operator.reconcile.at_rest` defines the permitted uses.

The streams also report objects of other operators' FlinkJobs. The API server cannot filter these objects out, because
it filters by labels. Each child would then need the labels that assign its FlinkJob to an operator
(`reconcile.ownership.Shard`). If the FlinkJob moved to another operator, its pods would need new labels, and this
change would restart the job.

The copy drops these objects as soon as it knows which FlinkJobs exist. When a FlinkJob moves here from another
operator, its children are missing until a stream reports them or the operator lists all objects. During that time, the
copy shows a job that is not at rest, so the operator uses fresh reads.

The copy stores objects as JSON without `managedFields`, which needs a tenth of the memory of Python objects. A reader
gets its own copy of an object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.kube.cluster import DEPLOYMENT, FLINKJOB, FLINKSNAPSHOT, POD, REVISION, Kind, Manifest
from penstock_operator.resources.names import JOB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock_operator.kube.cluster import Cluster

WATCHED = (FLINKJOB, FLINKSNAPSHOT, DEPLOYMENT, POD, REVISION)
"""Kinds in the copy. The copy has all FlinkJobs, and the objects of the other kinds that have the label of a FlinkJob."""

Place = tuple[str, str, str]
"""Kind of the objects, and namespace and name of their FlinkJob."""


@dataclass(frozen=True)
class _Entry:
    place: Place
    name: str
    version: str
    data: bytes
    stamp: int


class WatchedObjects:
    """The copied objects by FlinkJob and uid.

    An object that was deleted and created again under the same name has a new uid. The old and the new object can be in
    the copy at the same time.
    """

    def __init__(self, *, shared: bool = False) -> None:
        """Create an empty copy.

        Args:
            shared: whether other operators manage some of the FlinkJobs. The streams of FlinkJobs do not report these
                FlinkJobs.
        """
        self._shared = shared
        self._listed: set[str | None] = set()
        """Namespaces whose FlinkJobs have been listed."""
        self._places: dict[Place, dict[str, _Entry]] = {}
        self._place_of: dict[str, Place] = {}
        self._deleted_at: dict[str, int] = {}
        self.clock = 0
        """Counter that increases with every change of the copy."""

    def handle_event(self, kind: Kind, manifest: Manifest, *, deleted: bool = False) -> bool:
        """Record an event, or an entry of a list. Return whether it changed the copy. Events of one uid must arrive
        in their order.
        """
        meta = manifest["metadata"]
        uid, place = str(meta.get("uid")), _place(kind, manifest)
        before = self._entry(uid)
        if before is None and self._is_foreign(place):
            return False
        if deleted or self._is_foreign(place) or place is None:
            self._drop(uid)
            return before is not None
        if before is not None and before.place == place and before.version == meta.get("resourceVersion"):
            return False
        self._drop(uid)
        self._deleted_at.pop(uid, None)
        body = {**manifest, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}}
        body |= {"kind": kind.name, "apiVersion": kind.api_version}
        data = json.dumps(body, separators=(",", ":")).encode()
        entry = _Entry(place, meta["name"], str(meta.get("resourceVersion")), data, self.clock)
        self._places.setdefault(place, {})[uid] = entry
        self._place_of[uid] = place
        return True

    def correct_copy(
        self, kind: Kind, namespace: str | None, since: int, found: Iterable[Manifest]
    ) -> set[tuple[str, str]]:
        """Correct the copy with a fresh list that was requested when `clock` was `since`.

        Skip objects with events after `since`, because these are newer than the list. Return namespace and FlinkJob
        of the objects that were wrong in the copy.
        """
        touched: set[tuple[str, str]] = set()
        listed = set()
        for manifest in found:
            uid = str(manifest["metadata"].get("uid"))
            listed.add(uid)
            entry, place = self._entry(uid), _place(kind, manifest)
            later = self._deleted_at.get(uid, 0) > since or (entry is not None and entry.stamp > since)
            if not later and self.handle_event(kind, manifest) and place is not None:
                touched.add(place[1:])
        for uid, place in list(self._place_of.items()):
            entry = self._entry(uid)
            in_list = place[0] == kind.name and namespace in (None, place[1])
            if in_list and uid not in listed and entry is not None and entry.stamp <= since:
                self._drop(uid)
                touched.add(place[1:])
        if kind is FLINKJOB:
            self._listed.add(namespace)
            for uid, place in list(self._place_of.items()):
                if self._is_foreign(place):
                    self._drop(uid)
        self._deleted_at = {uid: stamp for uid, stamp in self._deleted_at.items() if stamp > since}
        return touched

    def has_job(self, namespace: str, name: str) -> bool:
        """Return whether the copy has the FlinkJob."""
        return (FLINKJOB.name, namespace, name) in self._places

    # --- reads, with the methods of `Cluster` ------------------------------------------------------------------------

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Return a FlinkJob. Return None if it is not in the copy, or if the copy has two FlinkJobs with this name."""
        found = self._places.get((kind.name, namespace, name), {})
        return json.loads(next(iter(found.values())).data) if len(found) == 1 and kind is FLINKJOB else None

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the objects of one FlinkJob, sorted by name."""
        found = self._places.get((kind.name, namespace, labels[JOB]), {})
        return [json.loads(entry.data) for entry in sorted(found.values(), key=lambda e: e.name)]

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        """Return None, because logs are not watched."""
        return None

    @property
    def size(self) -> int:
        """Size of all objects in bytes."""
        return sum(len(entry.data) for found in self._places.values() for entry in found.values())

    def _is_foreign(self, place: Place | None) -> bool:
        """Return whether the object belongs to a FlinkJob of another operator, or to no FlinkJob."""
        if not self._shared or place is None or place[0] == FLINKJOB.name or self._listed.isdisjoint((None, place[1])):
            return False
        return not self.has_job(place[1], place[2])

    def _entry(self, uid: str) -> _Entry | None:
        place = self._place_of.get(uid)
        return self._places[place][uid] if place is not None else None

    def _drop(self, uid: str) -> None:
        self.clock += 1
        self._deleted_at[uid] = self.clock
        place = self._place_of.pop(uid, None)
        if place is not None:
            del self._places[place][uid]
            if not self._places[place]:
                del self._places[place]


def _place(kind: Kind, manifest: Manifest) -> Place | None:
    meta = manifest["metadata"]
    job = meta["name"] if kind is FLINKJOB else (meta.get("labels") or {}).get(JOB)
    return (kind.name, str(meta.get("namespace", "")), str(job)) if job is not None else None


async def list_again(
    cluster: Cluster, watched: WatchedObjects, kind: Kind, namespace: str | None, selector: str
) -> tuple[list[Manifest], set[tuple[str, str]]]:
    """List the objects that a label selector selects, and correct the copy. Return the list, and the FlinkJobs with
    objects that were wrong in the copy.
    """
    since = watched.clock
    found = await cluster.list(kind, namespace, selector)
    return found, watched.correct_copy(kind, namespace, since, found)
