"""The few requests to the API server during the start of the cluster. Everything else uses kubectl."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

from tools.devcluster.pki import admin_token
from tools.devcluster.plan import NODE_NAME, Plan


def get(plan: Plan, path: str, *, timeout: float = 3.0) -> str | None:
    """Return the response to a GET by the administrator, or None on an error or without a response. ``timeout`` is in seconds."""
    try:
        context = ssl.create_default_context(cafile=str(plan.pki / "ca.crt"))
        # ignore a proxy of the environment: the API server is on this machine
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        request = urllib.request.Request(plan.server + path, headers={"Authorization": f"Bearer {admin_token(plan)}"})
        with opener.open(request, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body.decode()
    except (OSError, ValueError):
        return None


def serves(plan: Plan) -> bool:
    """Return whether the API server is ready."""
    return get(plan, "/readyz") == "ok"


def node_is_ready(plan: Plan) -> bool:
    """Return whether the node accepts pods."""
    answer = get(plan, f"/api/v1/nodes/{NODE_NAME}")
    node: dict[str, Any] = json.loads(answer) if answer else {}
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def default_account_exists(plan: Plan) -> bool:
    """Return whether the controller manager works. Without this account, the API server rejects every pod."""
    return get(plan, "/api/v1/namespaces/default/serviceaccounts/default") is not None


def dns_answers(plan: Plan) -> bool:
    """Return whether CoreDNS has read the Services."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{plan.node_address}:8181/ready", timeout=3.0) as answer:
            ready: bool = answer.status == 200
            return ready
    except OSError:
        return False
