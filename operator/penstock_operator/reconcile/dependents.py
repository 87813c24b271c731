"""Services, ConfigMap, accounts and so on, as they should be and as they are. Reads only, and not in every pass: they are not watched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.kube.cluster import CONFIG_MAP, KINDS, SECRET, kind_of
from penstock_operator.reconcile import views
from penstock_operator.reconcile.difference import difference
from penstock_operator.reconcile.steps.shared import deletion_policy, running_incarnation
from penstock_operator.resources.children import children, optional_children
from penstock_operator.resources.names import SECRET_KEYS, Owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.ports import Ports
    from penstock_operator.reconcile.context import Context
    from penstock_operator.reconcile.memory import Memory


async def flaws_around(
    ctx: Context, owner: Owner, beside: Sequence[Manifest], ports: Ports, memory: Memory
) -> tuple[str, ...]:
    """Names of what is missing, changed, or no longer wanted, each with where.

    Args:
        beside: the job's Deployments and revisions, which are looked at anyway; of them only the owners count here.
    """
    running = ctx.status.running
    incarnation = running_incarnation(ctx, running) if running is not None else None
    if running is None or incarnation is None or ctx.status.operation is not None or running.finished_at is not None:
        memory.dependents_at = None
        return ()
    now, key = ports.now(), (running.job_id, ctx.subject.generation)
    fresh = memory.dependents_at is not None and now - memory.dependents_at < ports.settings.dependents_resync
    if fresh and memory.dependents_for == key and not memory.missing:
        return ()
    owner, found = await _hold(ctx, owner, ports)
    wanted = children(owner, incarnation, ctx.spec or incarnation.spec, ports.identity)
    found += await asyncio.gather(*(_compare(ports, owner, w) for w in wanted))
    found += await asyncio.gather(
        *(_superfluous(ports, owner, wanted, kind, name) for kind, name in optional_children(owner))
    )
    secret = await ports.cluster.get(SECRET, owner.namespace, owner.secrets)
    if _lack(secret):
        found.append(f"Secret {owner.secrets} ({_lack(secret)})")
    if owner.hold_uid is not None:
        found += [_owners(owner, live) for live in [*beside, *([secret] if secret else ())]]
    memory.missing = tuple(n for n in found if n)
    memory.dependents_at = now if memory.dependents_for[0] else now - _share(ctx) * ports.settings.dependents_resync
    memory.dependents_for = key
    if not memory.missing:
        memory.applied_for = ctx.subject.generation
    return memory.missing


def _share(ctx: Context) -> float:
    """From 0 to 1, another one for every job: what is due from time to time is not to be due for all of them at once."""
    return int(ctx.digest("share", length=8), 16) / 16**8


async def _hold(ctx: Context, owner: Owner, ports: Ports) -> tuple[Owner, list[str]]:
    """The owner as it is to be in references, and what is wrong with its hold."""
    live = await ports.cluster.get(CONFIG_MAP, owner.namespace, owner.hold)
    mine = live is not None and views.is_made_for(owner, live)
    if not deletion_policy(ctx).savepoint:
        return owner, [f"ConfigMap {owner.hold} (no longer wanted)"] if mine else []
    if live is None or not mine:
        return owner, [f"ConfigMap {owner.hold} (missing)"]
    return replace(owner, hold_uid=live["metadata"]["uid"]), []


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
    mine = live is not None and views.is_made_for(owner, live)
    return f"{kind} {name} (no longer wanted)" if mine else ""
