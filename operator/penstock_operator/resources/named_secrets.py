"""The Secrets that a pod refers to, and their content. Pure functions."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
"""Type of the Secrets that hold a token for the Kubernetes API."""
_REFERENCES = frozenset({"secretRef", "secretKeyRef", "secret", "nodePublishSecretRef"})
_POD_SPEC = {"Pod": ("spec",), "Deployment": ("spec", "template", "spec")}


def named_secrets(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of all Secrets that the containers and volumes of a Pod or Deployment refer to. Return no names
    for other kinds.

    >>> volume = {"name": "keys", "projected": {"sources": [{"secret": {"name": "a"}}]}}
    >>> sorted(named_secrets({"kind": "Pod", "spec": {"volumes": [volume, {"secret": {"secretName": "b"}}]}}))
    ['a', 'b']
    """
    node: Any = manifest
    for key in _POD_SPEC.get(str(manifest.get("kind")), ()):
        node = (node or {}).get(key)
    return frozenset(_named(node)) if manifest.get("kind") in _POD_SPEC else frozenset()


def _named(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _named(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, dict):
                # Kubernetes reads one of the two fields and ignores the other. Include both, which is always safe.
                yield from (str(name) for field in ("secretName", "name") if (name := value.get(field)))
            yield from _named(value)


def secret_texts(secret: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the content of a Secret. Skip values that are not text, for example a keystore.

    >>> secret_texts({"data": {"username": "bWU=", "store": "/v8="}})
    {'username': 'me'}
    """
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        with contextlib.suppress(UnicodeDecodeError):
            found[key] = base64.b64decode(value).decode()
    return found
