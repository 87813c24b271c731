"""What the watch streams have told: a copy of some of the API's objects, as old as the streams are slow.

Nothing in it is certain. It is behind by seconds, and by our own last write; what was deleted while a stream was
broken stays in it until `correct` is told of a fresh list. So nobody may change anything because of what stands here: see
`penstock_operator.reconcile.at_rest`, which says what it may be used for.

What belongs to the FlinkJobs of other operators is told, too: the API server cannot leave it out, since a child would have to carry
the labels that decide (`ports.Shard`), and to give other labels to the pods of a job that moves would restart it. It is not kept, once
it is known which FlinkJobs there are. When one comes from another operator, what belongs to it is missing until a stream tells of
it or all is listed; so long the copy shows a job that is not at rest, and it is looked at with fresh reads.

Objects are kept as JSON, a tenth of what they take as Python's objects, and without `managedFields`. Who reads gets a copy.
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
"""Kinds that are copied; of all but the first only objects that carry the label of a FlinkJob."""

Place = tuple[str, str, str]
"""Kind, namespace, name of the FlinkJob."""


@dataclass(frozen=True)
class _Entry:
    place: Place
    name: str
    version: str
    data: bytes
    stamp: int


class WatchedObjects:
    """By FlinkJob and uid: an object that was made anew under its name is another one, and the two may overlap."""

    def __init__(self, *, shared: bool = False) -> None:
        """`shared`: other operators look after some of the FlinkJobs, which the streams of FlinkJobs do not tell of."""
        self._shared = shared
        self._listed: set[str | None] = set()
        """Namespaces whose FlinkJobs have been listed."""
        self._places: dict[Place, dict[str, _Entry]] = {}
        self._where: dict[str, Place] = {}
        self._gone: dict[str, int] = {}
        self.clock = 0
        """Grows with everything that is heard."""

    def hear(self, kind: Kind, manifest: Manifest, *, gone: bool = False) -> bool:
        """An event, or an entry of a list; whether it says anything new. Events of one uid come in their order."""
        meta = manifest["metadata"]
        uid, place = str(meta.get("uid")), _place(kind, manifest)
        before = self._entry(uid)
        if before is None and self._is_others(place):
            return False
        if gone or self._is_others(place) or place is None:
            self._drop(uid)
            return before is not None
        if before is not None and before.place == place and before.version == meta.get("resourceVersion"):
            return False
        self._drop(uid)
        self._gone.pop(uid, None)
        body = {**manifest, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}}
        body |= {"kind": kind.name, "apiVersion": kind.api_version}
        data = json.dumps(body, separators=(",", ":")).encode()
        entry = _Entry(place, meta["name"], str(meta.get("resourceVersion")), data, self.clock)
        self._places.setdefault(place, {})[uid] = entry
        self._where[uid] = place
        return True

    def correct(self, kind: Kind, namespace: str | None, since: int, found: Iterable[Manifest]) -> set[tuple[str, str]]:
        """A fresh list that was asked for when `clock` was `since`; whose objects (namespace, FlinkJob) were not as listed.

        What was heard of an object after that is newer than the list.
        """
        touched: set[tuple[str, str]] = set()
        listed = set()
        for manifest in found:
            uid = str(manifest["metadata"].get("uid"))
            listed.add(uid)
            entry, place = self._entry(uid), _place(kind, manifest)
            later = self._gone.get(uid, 0) > since or (entry is not None and entry.stamp > since)
            if not later and self.hear(kind, manifest) and place is not None:
                touched.add(place[1:])
        for uid, place in list(self._where.items()):
            entry = self._entry(uid)
            in_list = place[0] == kind.name and namespace in (None, place[1])
            if in_list and uid not in listed and entry is not None and entry.stamp <= since:
                self._drop(uid)
                touched.add(place[1:])
        if kind is FLINKJOB:
            self._listed.add(namespace)
            for uid, place in list(self._where.items()):
                if self._is_others(place):
                    self._drop(uid)
        self._gone = {uid: stamp for uid, stamp in self._gone.items() if stamp > since}
        return touched

    def has_job(self, namespace: str, name: str) -> bool:
        """Whether the watch has told of the FlinkJob."""
        return (FLINKJOB.name, namespace, name) in self._places

    # --- reading, as from a `Cluster` --------------------------------------------------------------------------------

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """A FlinkJob; None if it is not here, or if two of the name are."""
        found = self._places.get((kind.name, namespace, name), {})
        return json.loads(next(iter(found.values())).data) if len(found) == 1 and kind is FLINKJOB else None

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """What belongs to one FlinkJob, by name."""
        found = self._places.get((kind.name, namespace, labels[JOB]), {})
        return [json.loads(entry.data) for entry in sorted(found.values(), key=lambda e: e.name)]

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        """Logs are not watched."""
        return None

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(len(entry.data) for found in self._places.values() for entry in found.values())

    def _is_others(self, place: Place | None) -> bool:
        """It belongs to a FlinkJob that another operator looks after, or to none."""
        if not self._shared or place is None or place[0] == FLINKJOB.name or self._listed.isdisjoint((None, place[1])):
            return False
        return not self.has_job(place[1], place[2])

    def _entry(self, uid: str) -> _Entry | None:
        place = self._where.get(uid)
        return self._places[place][uid] if place is not None else None

    def _drop(self, uid: str) -> None:
        self.clock += 1
        self._gone[uid] = self.clock
        place = self._where.pop(uid, None)
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
    """A fresh list of what a label selector selects, and what the copy had wrong."""
    since = watched.clock
    found = await cluster.list(kind, namespace, selector)
    return found, watched.correct(kind, namespace, since, found)
