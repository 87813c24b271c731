"""How to reach the API server: the pod's service account, or a kubeconfig file."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock_operator.errors import KubeError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Credentials:
    """Server and how to prove who we are."""

    server: str
    tls: ssl.SSLContext | bool = True
    token: str | None = None
    token_file: Path | None = None
    namespace: str = "default"
    extra: dict[str, str] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """Authorization; the token file is read anew, since the kubelet rotates it."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_credentials(kubeconfig: str | None = None) -> Credentials:
    """The given kubeconfig, else `KUBECONFIG`, else the pod's service account, else `~/.kube/config`."""
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if chosen:
        return from_kubeconfig(Path(chosen.split(os.pathsep)[0]))
    if (SERVICE_ACCOUNT_DIR / "token").is_file():
        return from_service_account()
    return from_kubeconfig(Path.home() / ".kube" / "config")


def from_service_account(root: Path = SERVICE_ACCOUNT_DIR) -> Credentials:
    """The account that the kubelet mounts into every pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if ":" in host:
        host = f"[{host}]"
    return Credentials(
        server=f"https://{host}:{port}",
        tls=ssl.create_default_context(cafile=str(root / "ca.crt")),
        token_file=root / "token",
        namespace=(root / "namespace").read_text().strip(),
    )


def from_kubeconfig(path: Path) -> Credentials:
    """The current context of a kubeconfig with a token or a client certificate."""
    if not path.is_file():
        msg = f"there is no kubeconfig at {path}: run inside a cluster, or set KUBECONFIG"
        raise KubeError(msg)
    config = yaml.safe_load(path.read_text())
    context = _named(config, "contexts", config.get("current-context"))["context"]
    cluster = _named(config, "clusters", context["cluster"])["cluster"]
    user = _named(config, "users", context["user"])["user"]
    if "exec" in user or "auth-provider" in user:
        msg = f"user {context['user']!r} in {path} needs a credential plugin: use a token or a client certificate"
        raise KubeError(msg)
    return Credentials(
        server=cluster["server"],
        tls=_tls(cluster, user),
        token=user.get("token"),
        token_file=Path(user["tokenFile"]) if "tokenFile" in user else None,
        namespace=context.get("namespace", "default"),
    )


def _named(config: dict[str, Any], group: str, name: str | None) -> dict[str, Any]:
    for entry in config.get(group, ()):
        if entry.get("name") == name:
            return dict(entry)
    msg = f"the kubeconfig has no entry {name!r} in {group}"
    raise KubeError(msg)


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext | bool:
    if cluster["server"].startswith("http://"):
        return False
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(data).decode() if data else None
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        _load_inline(context, user)
    return context


def _load_inline(context: ssl.SSLContext, user: dict[str, Any]) -> None:
    """ssl reads certificates from files only; this one exists for a moment, readable by us alone."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
        pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
        pem.flush()
        context.load_cert_chain(pem.name)
