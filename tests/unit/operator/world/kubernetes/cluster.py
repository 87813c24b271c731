"""An API server in memory: resourceVersions, status subresource, finalizers, garbage collection."""

from __future__ import annotations

import asyncio
import pickle
from bisect import insort
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.errors import AlreadyExists, Conflict, Denied, Invalid, QuotaExceeded, Unavailable
from penstock_operator.kube.cluster import KINDS, SECRET, Kind, Manifest
from penstock_operator.kube.selector import parse_selector
from tests.unit.operator.world.kubernetes.garbage_collector import FOREGROUND, GarbageCollector
from tests.unit.operator.world.kubernetes.managed_fields import applied, clone

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

    from tests.unit.operator.world.faults import Fault

Key = tuple[str, str, str]
_GRACEFUL = {"Pod"}


class FakeCluster:
    """An implementation of `Cluster`, and methods without `async` with which a test changes it behind the operator's back."""

    def __init__(self, fault: Fault, now: Callable[[], str]) -> None:
        self.fault, self._now = fault, now
        self.objects: dict[Key, Manifest] = {}
        """The existing objects. A change never modifies an object in place; it replaces the object."""
        self._kinds: dict[str, builtins.list[Key]] = defaultdict(list)
        """The keys of objects by kind, in their order."""
        self._frozen: dict[Key, bytes] = {}
        """Pickled objects that are copied for readers."""
        self.logs: dict[str, str] = {}
        self.denied: dict[str, str] = {}
        """The reason by kind why the creation or an apply is forbidden."""
        self.unreadable: set[str] = set()
        """Kinds that the operator has no right to read."""
        self.broken: set[str] = set()
        """Kinds that the API server cannot read."""
        self.undeletable: set[str] = set()
        """Kinds that the operator has no right to delete."""
        self.invalid: Callable[[str, Manifest], str | None] = lambda verb, manifest: None
        """A function of (create, apply or dry-run, object) that returns the reason why the object is invalid."""
        self.quotas: dict[str, int] = {}
        """The maximum number of objects by kind."""
        self.admission: Callable[[Manifest], None] = lambda manifest: None
        """A mutating admission webhook, which changes created and applied objects."""
        self._applied: dict[Key, Manifest] = {}
        """The objects as the operator applied them: its managed fields."""
        self.writes: builtins.list[str] = []
        self.reads = 0
        self.secrets: set[tuple[str, str, str]] = set()
        """The (verb, namespace, name) of every request of the operator for Secrets."""
        self.version = 0
        """A number that grows with every change."""
        self.watcher: Callable[[Manifest, bool], None] = lambda manifest, gone: None
        """A callback for every change, with whether the object is gone."""
        self._uids = 0
        self.garbage = GarbageCollector(self)

    # --- Cluster -----------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        self._read(kind)
        self._note("get", kind.name, namespace, name)
        await asyncio.sleep(0)
        return self._copy((kind.name, namespace, name))

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | str = ""
    ) -> builtins.list[Manifest]:
        self._read(kind)
        self._note("list", kind.name, namespace or "", "")
        await asyncio.sleep(0)
        found = self.select(kind.name, namespace, {} if isinstance(labels, str) else labels)
        selector = parse_selector(labels if isinstance(labels, str) else "")
        return [self._copy(self._key(m)) for m in found if selector.matches(m["metadata"].get("labels") or {})]

    def _note(self, verb: str, kind: str, namespace: str, name: str) -> None:
        if kind == SECRET.name:
            self.secrets.add((verb, namespace, name))

    def _read(self, kind: Kind) -> None:
        self.reads += 1
        if kind.name in self.unreadable:
            raise Denied(f"{kind.plural} is forbidden: the operator cannot read resource {kind.plural}", status=403)
        if kind.name in self.broken:
            raise Unavailable(f"{kind.plural}: Internal error occurred: unable to transform key", status=500)

    async def create(self, manifest: Manifest) -> Manifest:
        call = self._before("create", manifest)
        key = self._key(manifest)
        if key in self.objects:
            raise AlreadyExists(f"{key} exists", status=409)
        self.put(self._admitted(manifest))
        answer = self._copy(key)
        self.fault.after(call)
        await asyncio.sleep(0)
        return answer

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        call = self._before("dry-run" if dry_run else "apply", manifest)
        if dry_run:
            self.fault.after(call)
            await asyncio.sleep(0)
            return clone(manifest)
        key = self._key(manifest)
        live = self.objects.get(key)
        if live is None:
            self.put(self._admitted(manifest))
        else:
            self._store(key, self._admitted(applied(live, self._applied.get(key, {}), manifest)))
        self._applied[key] = clone(manifest)
        answer = self._copy(key)
        self.fault.after(call)
        await asyncio.sleep(0)
        return answer

    async def replace(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        call = self._before(f"replace {subresource}".strip(), manifest)
        key = self._key(manifest)
        live = self.objects.get(key)
        if live is None or live["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]:
            raise Conflict(f"{key} has changed", status=409)
        merged = {**self._copy(key), "status": clone(manifest["status"])} if subresource else clone(manifest)
        self._store(key, merged)
        answer = self._copy(key)
        self.fault.after(call)
        await asyncio.sleep(0)
        return answer

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Manifest) -> Manifest | None:
        key = (kind.name, namespace, name)
        call = f"merge {kind.name} {name}"
        self._note("patch", kind.name, namespace, name)
        self.fault.before(call)
        self.writes.append(call)
        live = self.objects.get(key)
        if live is None:
            return None
        version = patch.get("metadata", {}).get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise Conflict(f"{key} has changed", status=409)
        self._store(key, _merge(self._copy(key), patch))
        self._finish_deletion(key)
        self.fault.after(call)
        await asyncio.sleep(0)
        return self._copy(key)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, force: bool = False, seen: Manifest | None = None
    ) -> None:
        call = f"delete {kind.name} {name}"
        self._note("delete", kind.name, namespace, name)
        self.fault.before(call)
        self.writes.append(call)
        live = self.objects.get((kind.name, namespace, name))
        if seen is not None and live is not None:
            for key in ("uid", "resourceVersion"):
                if live["metadata"][key] != seen["metadata"][key]:
                    raise Conflict(f"{call}: the {key} in the precondition is not the object's", status=409)
        if kind.name in self.undeletable:
            raise Denied(f"{call}: forbidden", status=403)
        if force:
            self.drop(kind.name, namespace, name)
        else:
            self.remove(kind.name, namespace, name)
        self.fault.after(call)
        await asyncio.sleep(0)

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        return self.logs.get(pod, "")[-limit:] if container == MAIN_CONTAINER else None

    # --- for tests and for the simulated controllers -----------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """Return the number of the next created object."""
        return self._uids + 1

    def put(self, manifest: Manifest) -> Manifest:
        """Create an object without faults."""
        stored = clone(manifest)
        self._uids += 1
        meta = stored["metadata"]
        meta.setdefault("uid", f"uid-{self._uids:04d}-{meta['name']}")
        meta.setdefault("creationTimestamp", self._now())
        meta["generation"] = 1
        if stored["kind"] == "Pod":
            stored.setdefault("status", {"phase": "Pending"})
        key = self._key(stored)
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        self._keep(key, stored)
        self.watcher(stored, False)
        return stored

    def edit(self, kind: str, namespace: str, name: str, change: Callable[[Manifest], Any]) -> None:
        """Change an object in place, as a user or a controller does."""
        key = (kind, namespace, name)
        changed = self._copy(key)
        change(changed)
        self._store(key, changed)

    def change(self, key: Key, how: Callable[[Manifest], Any]) -> None:
        """Change metadata, and remove the object if nothing holds it any more."""
        self.edit(*key, how)
        self._finish_deletion(key)

    def remove(self, kind: str, namespace: str, name: str, *, foreground: bool = False) -> None:
        """Request deletion.

        A foreground deletion keeps the object until the garbage collector has removed its dependents.
        """
        key = (kind, namespace, name)
        live = self.objects.get(key)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return
        changed = self._copy(key)
        changed["metadata"]["deletionTimestamp"] = self._now()
        if foreground and kind not in _GRACEFUL:
            changed["metadata"]["finalizers"] = [*(changed["metadata"].get("finalizers") or ()), FOREGROUND]
        self._store(key, changed, bump=False)
        if kind not in _GRACEFUL:
            self._finish_deletion(key)

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object immediately. The garbage collector removes its dependents."""
        key = (kind, namespace, name)
        gone = self.objects.pop(key, None)
        if gone is not None:
            self._kinds[kind].remove(key)
            self._frozen.pop(key, None)
            self._applied.pop(key, None)
            self.version += 1
            self.watcher(gone, True)

    def select(self, kind: str, namespace: str | None, labels: Mapping[str, str]) -> builtins.list[Manifest]:
        found = [self.objects[key] for key in self._kinds[kind] if namespace in (None, key[1])]
        wanted = labels.items()
        return [m for m in found if wanted <= (m["metadata"].get("labels") or {}).items()] if labels else found

    def one(self, kind: str, name: str, namespace: str = "default") -> Manifest | None:
        return self.objects.get((kind, namespace, name))

    def _before(self, verb: str, manifest: Manifest) -> str:
        call = f"{verb} {manifest['kind']} {manifest['metadata']['name']}"
        self._note(verb, manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        self.fault.before(call)
        if verb != "dry-run":
            self.writes.append(call)
        if manifest["kind"] not in KINDS:
            raise AssertionError(f"unknown kind {manifest['kind']}")
        if manifest["kind"] in self.denied and not verb.startswith("replace"):
            raise Denied(self.denied[manifest["kind"]], status=403)
        quota, kind = self.quotas.get(manifest["kind"]), manifest["kind"]
        if quota is not None and self._key(manifest) not in self.objects and len(self._kinds[kind]) >= quota:
            raise QuotaExceeded(f"{call}: exceeded quota: small, limited: count/{kind}={quota}", status=403)
        reason = self.invalid(verb, manifest)
        if reason is not None:
            raise Invalid(reason, status=422)
        return call

    def _admitted(self, manifest: Manifest) -> Manifest:
        changed: Manifest = clone(manifest)
        self.admission(changed)
        return changed

    def _key(self, manifest: Manifest) -> Key:
        return (manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])

    def _store(self, key: Key, manifest: Manifest, *, bump: bool = True) -> Manifest:
        live = self.objects.get(key)
        if live == manifest:
            return manifest
        if (
            live is not None
            and manifest["kind"] == "ControllerRevision"
            and not manifest["metadata"].get("deletionTimestamp")
        ):
            raise Invalid(f"{key}: data: field is immutable", status=422)  # the order of its keys is significant
        if live is not None and live.get("immutable") and live.get("data") != manifest.get("data"):
            raise Invalid(f"{key}: field is immutable when `immutable` is set", status=422)
        if bump and live is not None and live.get("spec") != manifest.get("spec"):
            manifest["metadata"]["generation"] = live["metadata"].get("generation", 1) + 1
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)
        self._keep(key, manifest)
        self.watcher(manifest, False)
        return manifest

    def _keep(self, key: Key, manifest: Manifest) -> None:
        if key not in self.objects:
            insort(self._kinds[key[0]], key)
        self.objects[key] = manifest
        self._frozen.pop(key, None)

    def _copy(self, key: Key) -> Any:
        """Return a copy that the reader may change, or None if the object does not exist."""
        live = self.objects.get(key)
        if live is None:
            return None
        frozen = self._frozen.get(key)
        if frozen is None:
            frozen = self._frozen[key] = pickle.dumps(live, pickle.HIGHEST_PROTOCOL)
        return pickle.loads(frozen)

    def _finish_deletion(self, key: Key) -> None:
        live = self.objects.get(key)
        if live and "deletionTimestamp" in live["metadata"] and not live["metadata"].get("finalizers"):
            self.drop(*key)


def _merge(live: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return clone(patch)
    out = live if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif key != "resourceVersion":
            out[key] = _merge(out.get(key), value)
    return out
