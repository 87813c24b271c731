"""The objects of one FlinkJob: create, apply and delete them, but never change objects of another owner."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_operator.errors import AlreadyExists, Denied, Invalid, NameTaken, SecretMissing
from penstock_operator.kube.cluster import CONFIG_MAP, DEPLOYMENT, KINDS, POD, SECRET
from penstock_operator.reconcile.observation import is_at
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import spare_configs
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.resources import children as parts
from penstock_operator.resources.configuration import config_map, former_config_map, parallelism_map
from penstock_operator.resources.hold import TRACKED_BY, hold
from penstock_operator.resources.named_secrets import ACCOUNT_TOKEN, named_secrets
from penstock_operator.resources.names import JOB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_operator.kube.cluster import Cluster, Kind, Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.resources.incarnation import Incarnation
    from penstock_operator.resources.names import Owner

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class Objects:
    """The objects of one FlinkJob, for one action."""

    def __init__(self, ctx: Context, ports: Ports, cache: Cache) -> None:
        self._ctx, self._ports, self._cache = ctx, ports, cache
        self.owner = ctx.subject.owner
        """The owner of new objects. It includes the hold as soon as the hold exists."""

    async def create(self, manifest: Manifest) -> None:
        """Create an object. Keep an existing object unchanged if it belongs to this FlinkJob."""
        await self.check_secrets(manifest)
        try:
            await self._ports.cluster.create(manifest)
        except AlreadyExists:
            await self.claim(manifest)

    async def apply(self, manifest: Manifest) -> None:
        """Apply an object with server-side apply, unless it belongs to another owner."""
        await self.claim(manifest)
        await self.check_secrets(manifest)
        await self._ports.cluster.apply(manifest)

    async def claim(self, *wanted: Manifest) -> None:
        """Raise `NameTaken` if an object of the same name exists that was not created for this FlinkJob."""
        for manifest in wanted:
            live = await self._ports.cluster.get(
                KINDS[manifest["kind"]], self.owner.namespace, manifest["metadata"]["name"]
            )
            if live is not None:
                self.refuse_foreign(manifest, live)

    async def check_secrets(self, manifest: Manifest) -> None:
        """Refuse pods that refer to certain Secrets. See the function `check_secrets`."""
        await check_secrets(self._ports, self.owner, manifest)

    def refuse_foreign(self, wanted: Manifest, live: Manifest) -> None:
        """Raise `NameTaken` if `live` was not created for this FlinkJob."""
        if manifests.is_made_for(self.owner, live):
            return
        object_name = f"{wanted['kind']} {wanted['metadata']['name']}"
        if manifests.labels_of(live).get(JOB) == self.owner.name:
            msg = f"{object_name} belongs to an earlier FlinkJob {self.owner.name}"
            if not live["metadata"].get("ownerReferences"):
                msg += f". It has no owner, so Kubernetes never removes it: {manifests.removal([live])}"
            raise NameTaken(msg)
        msg = f"{object_name} exists and was not created for this FlinkJob. The operator does not change it"
        raise NameTaken(msg)

    async def scale(self, name: str, replicas: int) -> None:
        """Scale a Deployment of this FlinkJob. Do nothing if it does not exist."""
        live = await self._ports.cluster.get(DEPLOYMENT, self.owner.namespace, name)
        if live is None or not manifests.is_made_for(self.owner, live):
            return
        if live.get("spec", {}).get("replicas") != replicas:
            await self._ports.cluster.merge(DEPLOYMENT, self.owner.namespace, name, {"spec": {"replicas": replicas}})

    async def ensure_secret(self) -> None:
        """Create the Secret with random values if it does not exist. Never change a value, but add a missing value."""
        wanted = parts.secret(self.owner, secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        live = await self._ports.cluster.get(SECRET, self.owner.namespace, self.owner.secrets)
        if live is None:
            await self.create(wanted)
            return
        self.refuse_foreign(wanted, live)
        absent = {key: value for key, value in wanted["data"].items() if not (live.get("data") or {}).get(key)}
        if absent:
            await self._ports.cluster.merge(SECRET, self.owner.namespace, self.owner.secrets, {"data": absent})
            self._cache.token = None

    async def missing_created_once(self) -> list[Manifest]:
        """Return the objects that a start creates but never applies again, if they do not exist yet."""
        wanted = [parts.secret(self.owner, secrets.token_urlsafe(32), secrets.token_urlsafe(48))]
        if self._ctx.deletion_policy.savepoint:
            wanted.append(hold(self.owner))
        absent = []
        for manifest in wanted:
            name = manifest["metadata"]["name"]
            if await self._ports.cluster.get(KINDS[manifest["kind"]], self.owner.namespace, name) is None:
                absent.append(manifest)
        return absent

    async def configure(self, incarnation: Incarnation, names: frozenset[str]) -> None:
        """Create the configuration of an incarnation. An existing configuration is not changed, even if this version
        would create other content.
        """
        owner, cluster = self.owner, self._ports.cluster
        for name in sorted(names):
            former = name == owner.former_config
            wanted = former_config_map(owner, incarnation) if former else config_map(owner, incarnation)
            wanted["metadata"]["name"] = name
            live = await cluster.get(CONFIG_MAP, owner.namespace, name)
            if live is None:
                await self.create(wanted)
            else:
                self.refuse_foreign(wanted, live)
        if names - {owner.former_config}:
            await self.apply(parallelism_map(owner, incarnation.parallelism))

    async def delete_former_configs(self, kept: frozenset[str]) -> None:
        """Delete the configurations of former incarnations."""
        owner, cluster = self.owner, self._ports.cluster
        for name in spare_configs(owner, kept, await cluster.list(CONFIG_MAP, owner.namespace, {JOB: owner.name})):
            await cluster.delete(CONFIG_MAP, owner.namespace, name)

    async def ensure_hold(self) -> None:
        """Create the hold if a savepoint is required on deletion. Objects created after that have the hold as a
        second owner.
        """
        if not self._ctx.deletion_policy.savepoint:
            return
        wanted = hold(self.owner)
        live = await self._ports.cluster.get(CONFIG_MAP, self.owner.namespace, self.owner.hold)
        if live is None:
            await self.create(wanted)
            live = await self._ports.cluster.get(CONFIG_MAP, self.owner.namespace, self.owner.hold)
        if live is not None:
            self.refuse_foreign(wanted, live)
            self.owner = replace(self.owner, hold_uid=live["metadata"]["uid"])
            if TRACKED_BY in manifests.labels_of(live):  # an earlier version of the operator set the label
                unlabelled = {"metadata": {"labels": {TRACKED_BY: None}}}
                await self._ports.cluster.merge(CONFIG_MAP, self.owner.namespace, self.owner.hold, unlabelled)

    async def restore_owners(self, configs: frozenset[str]) -> None:
        """Restore owner references that a tool may have removed, for objects that are not applied again. Pods do not
        restart.
        """
        owner = self.owner
        await self._own(SECRET, owner.secrets)
        for name in configs:
            await self._own(CONFIG_MAP, name)
        for name in (owner.master, owner.worker):
            await self._own(DEPLOYMENT, name)

    async def delete_hold(self) -> None:
        """Delete the hold. Kubernetes also deletes the objects that have no other owner."""
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


async def mark_busy(cluster: Cluster, pods: Sequence[Manifest], busy: frozenset[str]) -> None:
    """Mark the worker pods that run a part of a job, so that the ReplicaSet deletes the others first."""
    for pod in pods:
        meta, ip = pod["metadata"], pod.get("status", {}).get("podIP")
        cost = "100" if any(is_at(one, meta["name"], ip) for one in busy) else "0"
        if manifests.annotations_of(pod).get(DELETION_COST) != cost:
            patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
            await cluster.merge(POD, meta["namespace"], meta["name"], patch)


async def check_secrets(ports: Ports, owner: Owner, manifest: Manifest) -> None:
    """Refuse pods that refer to a Secret with a token of a ServiceAccount. The type of the Secret decides, and
    not its name.

    Also refuse pods that refer to a Secret that does not exist, even if the reference is optional. If a user
    created the Secret later, the operator could not check its type before the waiting pods used it.

    Raises:
        Invalid: a Secret has that type.
        SecretMissing: a Secret does not exist.
        Denied: the operator may not read a Secret, so its type is not known.
    """
    for name in sorted(named_secrets(manifest) - {owner.secrets}):
        try:
            secret = await ports.cluster.get(SECRET, owner.namespace, name)
        except Denied as error:
            msg = f"the operator may not read the Secret {name}, so it cannot check whether jobs may use it: {error}"
            raise Denied(msg) from error
        if secret is None:
            msg = f"the Secret {name} does not exist, and {manifest['kind']} {manifest['metadata']['name']} names it"
            raise SecretMissing(msg)
        if secret.get("type") == ACCOUNT_TOKEN:
            msg = f"the Secret {name} has the type {ACCOUNT_TOKEN}: jobs get no token for the Kubernetes API. Remove it from the spec"
            raise Invalid(msg)
