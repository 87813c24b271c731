"""Services, ConfigMap, accounts and so on, as they should be and as they are. Reads only, and not in every pass: they are not watched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import Denied, Unavailable
from penstock_operator.kube.cluster import CONFIG_MAP, KINDS, SECRET, kind_of
from penstock_operator.reconcile.observation import UNREAD
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.resources.children import children, optional_children
from penstock_operator.resources.configuration import CONFIG_ROLE, parallelism_map
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
    """Names of what is missing, changed, or no longer wanted, each with where; and what may not be looked at.

    Args:
        beside: the job's Deployments, which are looked at anyway; of them only the owners count here.
    """
    try:
        return await _flaws(ctx, owner, beside, ports, cache)
    except (Denied, Unavailable) as error:
        if isinstance(error, Unavailable) and not is_lasting(cache.unread_since, ports):
            raise
        cache.missing = (f"what is around the pods ({UNREAD}: {error})",)
        return cache.missing


def is_lasting(unread_since: datetime | None, ports: Ports) -> bool:
    """Whether the API server has failed over reads for so long that it is no moment's trouble, such as a Secret that it cannot decrypt."""
    return unread_since is not None and ports.now() - unread_since >= ports.settings.read_patience


async def _flaws(ctx: Context, owner: Owner, beside: Sequence[Manifest], ports: Ports, cache: Cache) -> tuple[str, ...]:
    running = ctx.status.running
    incarnation = ctx.running_incarnation if running is not None else None
    busy = ctx.status.operation is not None or ctx.subject.deleting
    if running is None or incarnation is None or busy or running.finished_at is not None:
        cache.dependents_at = None
        return ()
    now, key = ports.now(), (running.job_id, ctx.subject.generation)
    fresh = cache.dependents_at is not None and now - cache.dependents_at < ports.settings.dependents_resync
    if fresh and cache.dependents_for == key and not cache.missing:
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
    if owner.hold_uid is not None:
        held = [*beside, *(maps[name] for name in configs if name in maps), *([secret] if secret else ())]
        found += [_owners(owner, live) for live in held]
    cache.missing = tuple(n for n in found if n)
    cache.dependents_at = now if cache.dependents_for[0] else now - _share(ctx) * ports.settings.dependents_resync
    cache.dependents_for = key
    if not cache.missing:
        cache.applied_for = ctx.subject.generation
    return cache.missing


def _share(ctx: Context) -> float:
    """From 0 to 1, another one for every job: what is due from time to time is not to be due for all of them at once."""
    return int(ctx.digest("share", length=8), 16) / 16**8


def _hold(ctx: Context, owner: Owner, live: Manifest | None) -> tuple[Owner, list[str]]:
    """The owner as it is to be in references, and what is wrong with its hold."""
    if not ctx.deletion_policy.savepoint:
        return owner, [f"ConfigMap {owner.hold} (no longer wanted)"] if live is not None else []
    if live is None:
        return owner, [f"ConfigMap {owner.hold} (missing)"]
    return replace(owner, hold_uid=live["metadata"]["uid"]), []


def _configs(ctx: Context, owner: Owner, configs: frozenset[str], maps: Mapping[str, Manifest]) -> list[str]:
    """Configurations that pods need and that are not there, and those that nothing needs any more.

    What is in one is not looked at: an incarnation keeps what it was started with.
    """
    found = [f"ConfigMap {name} (missing)" for name in sorted(configs - maps.keys())]
    if ctx.seen.master is not None and ctx.seen.worker is not None and configs:
        found += [f"ConfigMap {name} (no longer wanted)" for name in spare_configs(owner, configs, maps.values())]
    return found


def spare_configs(owner: Owner, kept: frozenset[str], maps: Iterable[Manifest]) -> list[str]:
    """Names of the configurations of former incarnations."""
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
    """What is missing of the job's own Secret."""
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
