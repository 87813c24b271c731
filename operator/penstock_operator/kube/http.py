"""Implementation of `Cluster` over HTTP. It has no cache, so every read returns the current state."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx

from penstock_operator.connections import connection_pool
from penstock_operator.errors import AlreadyExists, Conflict, Denied, Invalid, KubeError, QuotaExceeded, Unavailable
from penstock_operator.fence import no_fence
from penstock_operator.kube.cluster import POD, Kind, Manifest, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock_operator.fence import Fence
    from penstock_operator.kube.credentials import Credentials

FIELD_MANAGER = "penstock-operator"
RULES = Kind("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")
Rules = list[dict[str, Any]]
CONNECTIONS = 32
_APPLY = {"fieldManager": FIELD_MANAGER, "force": "true"}


class HttpCluster:
    """Client of the API server with a pool of connections."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        fence: Fence = no_fence,
        count: Callable[[str, str], None] = lambda verb, kind: None,
        timeout: float = 15.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client.

        Args:
            fence: called before every change. It raises an error if this process must not change anything.
            count: called for every request with its verb and its kind.
            timeout: seconds for one request.
            transport: replaces the network in tests.
        """
        self._credentials = credentials
        self._fence = fence
        self._count = count
        self._http = httpx.AsyncClient(
            base_url=credentials.server,
            timeout=timeout,
            trust_env=False,
            transport=transport or connection_pool(CONNECTIONS, credentials.tls),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """Implement `Cluster.get`."""
        response = await self._send("GET", kind, kind.path(namespace, name))
        return None if response is None else response.json()

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | str = "") -> list[Manifest]:
        """Implement `Cluster.list`."""
        selector = labels if isinstance(labels, str) else ",".join(f"{k}={v}" for k, v in labels.items())
        items: list[Manifest] = []
        params = {"limit": "500"} | ({"labelSelector": selector} if selector else {})
        while True:
            response = await self._send("GET", kind, kind.path(namespace), params=params, verb="list")
            if response is None:
                return items
            page = response.json()
            for item in page["items"]:
                item.setdefault("kind", kind.name)
                item.setdefault("apiVersion", kind.api_version)
                items.append(item)
            following = page["metadata"].get("continue")
            if not following:
                return items
            params["continue"] = following

    async def create(self, manifest: Manifest) -> Manifest:
        """Implement `Cluster.create`."""
        kind = kind_of(manifest)
        path = kind.path(manifest["metadata"].get("namespace"))
        params = {"fieldManager": FIELD_MANAGER}
        return self._object(await self._send("POST", kind, path, body=manifest, params=params), manifest)

    async def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Implement `Cluster.apply`."""
        kind, meta = kind_of(manifest), manifest["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"])
        content = "application/apply-patch+yaml"
        params, verb = (_APPLY | {"dryRun": "All"}, "dry-run") if dry_run else (_APPLY, "apply")
        response = await self._send("PATCH", kind, path, body=manifest, params=params, content=content, verb=verb)
        return self._object(response, manifest)

    async def replace(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Implement `Cluster.replace`."""
        kind, meta = kind_of(manifest), manifest["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"]) + (f"/{subresource}" if subresource else "")
        return self._object(await self._send("PUT", kind, path, body=manifest), manifest)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Manifest) -> Manifest | None:
        """Implement `Cluster.merge`."""
        content = "application/merge-patch+json"
        params = {"fieldManager": FIELD_MANAGER}
        path = kind.path(namespace, name)
        response = await self._send("PATCH", kind, path, body=patch, params=params, content=content)
        return None if response is None else response.json()

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, force: bool = False, seen: Manifest | None = None
    ) -> None:
        """Implement `Cluster.delete`."""
        body: Manifest = {"propagationPolicy": "Background"} | ({"gracePeriodSeconds": 0} if force else {})
        if seen is not None:
            body["preconditions"] = {key: seen["metadata"][key] for key in ("uid", "resourceVersion")}
        await self._send("DELETE", kind, kind.path(namespace, name), body=body)

    async def log(self, namespace: str, pod: str, container: str, limit: int) -> str | None:
        """Implement `Cluster.log`."""
        params = {"container": container, "tailLines": "2000", "limitBytes": str(limit)}
        try:
            response = await self._send("GET", POD, f"{POD.path(namespace, pod)}/log", params=params, verb="log")
        except (Invalid, Unavailable):
            return None
        return None if response is None else response.text

    async def serves(self, kind: Kind) -> bool:
        """Return whether the API server serves the kind, which means that its CRD is installed."""
        response = await self._send("GET", kind, f"/apis/{kind.api_version}", verb="discover")
        resources = response.json().get("resources", ()) if response is not None else ()
        return any(r.get("name") == kind.plural for r in resources)

    async def own_rules(self, namespace: str) -> Rules:
        """Return the permissions of this process in a namespace. Some authorizers do not report the permissions that they
        grant.
        """
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        response = await self._send("POST", RULES, path, body=body, verb="review", fenced=False)
        found: Rules = response.json().get("status", {}).get("resourceRules") or [] if response is not None else []
        return found

    async def _send(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        body: Manifest | None = None,
        params: Mapping[str, str] | None = None,
        content: str = "application/json",
        verb: str = "",
        fenced: bool = True,
    ) -> httpx.Response | None:
        limit = self._fence() if method != "GET" and fenced else None
        self._count(verb or method.lower(), kind.name)
        headers = self._credentials.headers() | ({"Content-Type": content} if body is not None else {})
        data = json.dumps(body).encode() if body is not None else None
        try:
            async with asyncio.timeout(limit):
                response = await self._http.request(method, path, params=params, headers=headers, content=data)
        except (httpx.HTTPError, TimeoutError) as error:
            msg = f"{method} {path}: no response from the API server ({type(error).__name__}: {error})"
            raise Unavailable(msg) from error
        if response.status_code == 404 and method != "POST":
            return None
        if response.is_success:
            return response
        raise _refusal(method, path, response)

    @staticmethod
    def _object(response: httpx.Response | None, manifest: Manifest) -> Manifest:
        if response is None:
            name = manifest["metadata"]["name"]
            msg = f"{manifest['kind']} {name} no longer exists"
            raise Conflict(msg, status=404)
        body: Manifest = response.json()
        return body


def _refusal(method: str, path: str, response: httpx.Response) -> KubeError:
    status = response.status_code
    details = _status(response)
    text = f"{method} {path}: {details.get('message') or response.text[:300] or status}"
    reason = details.get("reason")
    if status == 409:
        return (AlreadyExists if reason == "AlreadyExists" else Conflict)(text, status=status)
    if status in (401, 403):
        return (QuotaExceeded if "exceeded quota" in text else Denied)(text, status=status)
    if status in (400, 404, 405, 415, 422):
        return Invalid(text, status=status)
    return Unavailable(text, status=status)


def _status(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
