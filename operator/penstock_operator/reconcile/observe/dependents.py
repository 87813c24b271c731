"""Comparison of Services, ConfigMap, accounts and other objects with their required state.

The comparison only reads objects. It does not run in every pass, because these objects are not watched and each read is
a request.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import Denied, Unavailable
from penstock_operator.kube.cluster import CONFIG_MAP, KINDS, SECRET, kind_of
from penstock_operator.reconcile.decide.flows import leaves_alone
from penstock_operator.reconcile.observation import UNREAD
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.resources.children import children, optional_children
from penstock_operator.resources.configuration import CONFIG_ROLE, parallelism_map
from penstock_operator.resources.hold import TRACKED_BY
from penstock_operator.resources.names import JOB, ROLE, SECRET_KEYS, Owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports


async def flaws_around(
    ctx: Context, owner: Owner, beside: Sequence[Manifest], ports: Ports, cache: Cache
) -> tuple[str, ...]:
    """Return the names of objects that are missing, changed or superfluous, with the path of the difference. Include
    unreadable objects.

    Args:
        beside: the job's Deployments, which the pass has read anyway. Only their owner references are compared here.
    """
    try:
        return await _flaws(ctx, owner, beside, ports, cache)
    except (Denied, Unavailable) as error:
        if isinstance(error, Unavailable) and not is_lasting(cache.unread_since, ports):
            raise
        cache.missing = (f"other objects of the job ({UNREAD}: {error})",)
        return cache.missing


def is_lasting(unread_since: datetime | None, ports: Ports) -> bool:
    """Return whether the API server has failed reads for so long that the problem is not temporary.

    An example is a Secret that the API server cannot decrypt.
    """
    return unread_since is not None and ports.now() - unread_since >= ports.settings.read_patience


async def _flaws(ctx: Context, owner: Owner, beside: Sequence[Manifest], ports: Ports, cache: Cache) -> tuple[str, ...]:
    running = ctx.status.running
    incarnation = ctx.running_incarnation if running is not None else None
    op = ctx.status.operation
    busy = ctx.subject.deleting or (op is not None and not leaves_alone(op))
    if running is None or incarnation is None or busy or running.finished_at is not None:
        cache.dependents_at = None
        return ()
    now, key = ports.now(), (running.job_id, ctx.subject.generation)
    fresh = cache.dependents_at is not None and now - cache.dependents_at < ports.settings.dependents_resync
    if fresh and cache.dependents_key == key and not cache.missing:
        return ()
    listed = await ports.cluster.list(CONFIG_MAP, owner.namespace, {JOB: owner.name})
    maps = {m["metadata"]["name"]: m for m in listed if manifests.is_made_for(owner, m)}
    owner, found = _hold(ctx, owner, maps.get(owner.hold))
    configs = ctx.seen.configs(running.job_id)
    found += _configs(ctx, owner, configs, maps)
    wanted = children(owner, ctx.spec or incarnation.spec, ports.identity, incarnation)
    if configs - {owner.former_config}:
        wanted.append(parallelism_map(owner, running.parallelism))
    found += await asyncio.gather(*(_compare(ports, owner, w) for w in wanted))
    found += await asyncio.gather(
        *(_superfluous(ports, owner, wanted, kind, name) for kind, name in optional_children(owner))
    )
    secret = await ports.cluster.get(SECRET, owner.namespace, owner.secrets)
    if _lack(secret):
        found.append(f"Secret {owner.secrets} ({_lack(secret)})")
    kept = [*beside, *(maps[name] for name in configs if name in maps), *([secret] if secret else ())]
    found += [_owners(owner, live) for live in kept]
    cache.missing = tuple(n for n in found if n)
    cache.dependents_at = now if cache.dependents_key[0] else now - _share(ctx) * ports.settings.dependents_resync
    cache.dependents_key = key
    if not cache.missing:
        cache.applied_for = ctx.subject.generation
    return cache.missing


def _share(ctx: Context) -> float:
    """Return a number from 0 to 1 that differs between jobs. It distributes periodic reads of all jobs over time."""
    return int(ctx.digest("share", length=8), 16) / 16**8


def _hold(ctx: Context, owner: Owner, live: Manifest | None) -> tuple[Owner, list[str]]:
    """Return the owner with its hold, and the differences of the hold."""
    if not ctx.deletion_policy.savepoint:
        return owner, [f"ConfigMap {owner.hold} (no longer wanted)"] if live is not None else []
    if live is None:
        return owner, [f"ConfigMap {owner.hold} (missing)"]
    tracked = [f"ConfigMap {owner.hold} (label {TRACKED_BY})"] if TRACKED_BY in manifests.labels_of(live) else []
    return replace(owner, hold_uid=live["metadata"]["uid"]), tracked


def _configs(ctx: Context, owner: Owner, configs: frozenset[str], maps: Mapping[str, Manifest]) -> list[str]:
    """Return the missing configurations that the pods need, and the existing configurations that no pod needs.

    The content of a configuration is not compared, because an incarnation keeps the configuration with which it was
    started.
    """
    found = [f"ConfigMap {name} (missing)" for name in sorted(configs - maps.keys())]
    if ctx.seen.master is not None and ctx.seen.worker is not None and configs:
        found += [f"ConfigMap {name} (no longer wanted)" for name in spare_configs(owner, configs, maps.values())]
    return found


def spare_configs(owner: Owner, kept: frozenset[str], maps: Iterable[Manifest]) -> list[str]:
    """Return the names of the configurations of former incarnations."""
    spare = []
    for live in maps:
        name, role = live["metadata"]["name"], manifests.labels_of(live).get(ROLE)
        is_config = name == owner.former_config or (role == CONFIG_ROLE and name != owner.parallelism)
        if is_config and name not in kept and manifests.is_made_for(owner, live):
            spare.append(name)
    return sorted(spare)


def _owners(owner: Owner, live: Manifest) -> str:
    lacks = difference({"ownerReferences": owner.references()}, live["metadata"], "metadata")
    return f"{live['kind']} {live['metadata']['name']} ({lacks})" if lacks else ""


def _lack(secret: Manifest | None) -> str:
    """Return the missing data of the job's Secret."""
    if secret is None:
        return "missing"
    return ", ".join(f"data.{key}" for key in SECRET_KEYS if not (secret.get("data") or {}).get(key))


async def _compare(ports: Ports, owner: Owner, wanted: Manifest) -> str:
    live = await ports.cluster.get(kind_of(wanted), owner.namespace, wanted["metadata"]["name"])
    meta: dict[str, Any] = {
        k: v for k, v in wanted["metadata"].items() if k in ("labels", "annotations", "ownerReferences")
    }
    body = {k: v for k, v in wanted.items() if k not in ("metadata", "apiVersion", "kind")}
    where = "missing" if live is None else difference(body, live) or difference(meta, live["metadata"], "metadata")
    return f"{wanted['kind']} {wanted['metadata']['name']} ({where})" if where else ""


async def _superfluous(ports: Ports, owner: Owner, wanted: list[Manifest], kind: str, name: str) -> str:
    if any(w["kind"] == kind and w["metadata"]["name"] == name for w in wanted):
        return ""
    live = await ports.cluster.get(KINDS[kind], owner.namespace, name)
    mine = live is not None and manifests.is_made_for(owner, live)
    return f"{kind} {name} (no longer wanted)" if mine else ""
