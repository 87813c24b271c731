"""Secrets, read by name."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING

from penstock_operator.kube.cluster import SECRET

if TYPE_CHECKING:
    from penstock_operator.reconcile.ports import Ports


async def read_secret(ports: Ports, namespace: str, name: str) -> dict[str, str]:
    """The content of a Secret; empty if it does not exist. What is not text in it (a keystore, say) is left out."""
    secret = await ports.cluster.get(SECRET, namespace, name)
    data = (secret or {}).get("data") or {}
    found = {}
    for key, value in data.items():
        with contextlib.suppress(UnicodeDecodeError):
            found[key] = base64.b64decode(value).decode()
    return found
