"""The objects of one FlinkJob: made, applied and removed, and never taken from anybody else."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.errors import AlreadyExists, NameTaken
from penstock_operator.kube.cluster import CONFIG_MAP, DEPLOYMENT, KINDS, SECRET
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import spare_configs
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.resources import children as parts
from penstock_operator.resources.configuration import config_map, former_config_map, parallelism_map
from penstock_operator.resources.hold import hold
from penstock_operator.resources.names import JOB

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.resources.incarnation import Incarnation


class Objects:
    """Those of one FlinkJob, for one action."""

    def __init__(self, ctx: Context, ports: Ports, cache: Cache) -> None:
        self._ctx, self._ports, self._cache = ctx, ports, cache
        self.owner = ctx.subject.owner
        """With the hold, once there is one."""

    async def create(self, manifest: Manifest) -> None:
        """What is there already stays as it is, if it is this FlinkJob's."""
        try:
            await self._ports.cluster.create(manifest)
        except AlreadyExists:
            await self.claim(manifest)

    async def apply(self, manifest: Manifest) -> None:
        """Server-side, unless it is somebody else's."""
        await self.claim(manifest)
        await self._ports.cluster.apply(manifest)

    async def claim(self, *wanted: Manifest) -> None:
        """None of them takes the name of something that was not made for this FlinkJob."""
        for manifest in wanted:
            live = await self._ports.cluster.get(
                KINDS[manifest["kind"]], self.owner.namespace, manifest["metadata"]["name"]
            )
            if live is not None:
                self.refuse_stranger(manifest, live)

    def refuse_stranger(self, wanted: Manifest, live: Manifest) -> None:
        """Raises `NameTaken` if `live` was not made for this FlinkJob."""
        if manifests.is_made_for(self.owner, live):
            return
        what = f"{wanted['kind']} {wanted['metadata']['name']}"
        if manifests.labels_of(live).get(JOB) == self.owner.name:
            msg = f"{what} belongs to an earlier FlinkJob {self.owner.name}"
            raise NameTaken(msg)
        msg = f"{what} exists and was not made for this FlinkJob; it is not touched"
        raise NameTaken(msg)

    async def scale(self, name: str, replicas: int) -> None:
        """A Deployment of ours; one that is gone is fine."""
        live = await self._ports.cluster.get(DEPLOYMENT, self.owner.namespace, name)
        if live is None or not manifests.is_made_for(self.owner, live):
            return
        if live.get("spec", {}).get("replicas") != replicas:
            await self._ports.cluster.merge(DEPLOYMENT, self.owner.namespace, name, {"spec": {"replicas": replicas}})

    async def ensure_secret(self) -> None:
        """Made once with random values; a value is never changed, one that is missing is added."""
        wanted = parts.secret(self.owner, secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        live = await self._ports.cluster.get(SECRET, self.owner.namespace, self.owner.secrets)
        if live is None:
            await self.create(wanted)
            return
        self.refuse_stranger(wanted, live)
        absent = {key: value for key, value in wanted["data"].items() if not (live.get("data") or {}).get(key)}
        if absent:
            await self._ports.cluster.merge(SECRET, self.owner.namespace, self.owner.secrets, {"data": absent})
            self._cache.token = None

    async def configure(self, incarnation: Incarnation, names: frozenset[str]) -> None:
        """An incarnation's configuration is made once: what is there stays as it is, whatever this version would write."""
        owner, cluster = self.owner, self._ports.cluster
        for name in sorted(names):
            former = name == owner.former_config
            wanted = former_config_map(owner, incarnation) if former else config_map(owner, incarnation)
            wanted["metadata"]["name"] = name
            live = await cluster.get(CONFIG_MAP, owner.namespace, name)
            if live is None:
                await self.create(wanted)
            else:
                self.refuse_stranger(wanted, live)
        if names - {owner.former_config}:
            await self.apply(parallelism_map(owner, incarnation.parallelism))

    async def drop_configs(self, kept: frozenset[str]) -> None:
        """Remove the configurations of former incarnations."""
        owner, cluster = self.owner, self._ports.cluster
        for name in spare_configs(owner, kept, await cluster.list(CONFIG_MAP, owner.namespace, {JOB: owner.name})):
            await cluster.delete(CONFIG_MAP, owner.namespace, name)

    async def ensure_hold(self) -> None:
        """Where a savepoint is to be taken on deletion: what is made from here on has the hold as an owner, too."""
        if not self._ctx.deletion_policy.savepoint:
            return
        wanted = hold(self.owner)
        live = await self._ports.cluster.get(CONFIG_MAP, self.owner.namespace, self.owner.hold)
        if live is None:
            await self.create(wanted)
            live = await self._ports.cluster.get(CONFIG_MAP, self.owner.namespace, self.owner.hold)
        if live is not None:
            self.refuse_stranger(wanted, live)
            self.owner = replace(self.owner, hold_uid=live["metadata"]["uid"])

    async def hold_beside(self, configs: frozenset[str]) -> None:
        """What is not applied again: only its owners change, and no pod."""
        owner = self.owner
        await self._own(SECRET, owner.secrets)
        for name in configs:
            await self._own(CONFIG_MAP, name)
        for name in (owner.master, owner.worker):
            await self._own(DEPLOYMENT, name)

    async def delete_hold(self) -> None:
        """What it held goes with it, unless the FlinkJob holds it, too."""
        live = await self._ports.cluster.get(CONFIG_MAP, self.owner.namespace, self.owner.hold)
        if live is not None and manifests.is_made_for(self.owner, live):
            await self._ports.cluster.delete(CONFIG_MAP, self.owner.namespace, self.owner.hold)

    async def _own(self, kind: Kind, name: str) -> None:
        live = await self._ports.cluster.get(kind, self.owner.namespace, name)
        if live is None or not manifests.is_made_for(self.owner, live):
            return
        meta, ours = live["metadata"], self.owner.references()
        if difference({"ownerReferences": ours}, meta) is None:
            return
        theirs = [r for r in meta.get("ownerReferences") or () if r["uid"] not in {o["uid"] for o in ours}]
        patch = {"metadata": {"ownerReferences": [*ours, *theirs], "resourceVersion": meta["resourceVersion"]}}
        await self._ports.cluster.merge(kind, self.owner.namespace, name, patch)
