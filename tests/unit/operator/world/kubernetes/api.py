"""The API server over HTTP for several processes. The token of a request identifies the process."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from penstock_operator.errors import AlreadyExists, Conflict, KubeError
from penstock_operator.kube.cluster import KINDS, Kind

if TYPE_CHECKING:
    from tests.unit.operator.world.kubernetes.cluster import FakeCluster


ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


@dataclass
class FakeApi:
    """A fake API server. `answer` has the signature that `httpx.MockTransport` requires."""

    cluster: FakeCluster
    hangs: set[str] = field(default_factory=set)
    """The processes that get no answer."""
    kinds: bool = True
    """Whether the CRDs are installed."""
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    """Every write except those of the Lease: the process, the object, and the holder of the Lease at that time."""

    def holder(self) -> str:
        leases = self.cluster.select("Lease", None, {})
        return str(leases[0]["spec"]["holderIdentity"]) if leases else ""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        who = request.headers["Authorization"].removeprefix("Bearer ")
        if who in self.hangs:
            await asyncio.sleep(3600)
        body = json.loads(request.content) if request.content else {}
        if "selfsubjectrulesreviews" in request.url.path:
            return httpx.Response(201, json={"status": {"resourceRules": [ANYTHING]}})
        kind, namespace, name = self._target(request.url.path)
        if kind is None:
            served = ("flinkjobs", "flinksnapshots", "flinkclusters") if self.kinds else ()
            return httpx.Response(200, json={"resources": [{"name": plural} for plural in served]})
        if request.method != "GET" and kind.name != "Lease":
            self.writes.append((who, f"{request.method} {kind.name}", self.holder()))
        try:
            return await self._do(request, kind, namespace, name, body)
        except (AlreadyExists, Conflict) as error:
            return httpx.Response(409, json={"reason": type(error).__name__, "message": str(error)})
        except KubeError as error:
            return httpx.Response(error.status or 500, json={"message": str(error)})

    def _target(self, path: str) -> tuple[Kind | None, str, str]:
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = rest[1] if rest[:1] == ["namespaces"] else ""
        rest = rest[2:] if namespace else rest
        kind = next((k for k in KINDS.values() if rest and k.plural == rest[0]), None)
        return kind, namespace, rest[1] if len(rest) > 1 else ""

    async def _do(self, request: httpx.Request, kind: Kind, namespace: str, name: str, body: Any) -> httpx.Response:
        cluster, method = self.cluster, request.method
        found: Any = {}
        if method == "GET" and name:
            found = await cluster.get(kind, namespace, name)
        elif method == "GET":
            items = await cluster.list(kind, namespace or None, request.url.params.get("labelSelector", ""))
            found = {"items": items, "metadata": {}}
        elif method == "POST":
            found = await cluster.create(body)
        elif method == "PUT":
            found = await cluster.replace(body, subresource="status" if request.url.path.endswith("/status") else "")
        elif method == "DELETE":
            await cluster.delete(kind, namespace, name)
        elif "apply" in request.headers["Content-Type"]:
            found = await cluster.apply(body, dry_run="dryRun" in request.url.params)
        else:
            found = await cluster.merge(kind, namespace, name, body)
        return httpx.Response(404, json={}) if found is None else httpx.Response(200, json=found)
