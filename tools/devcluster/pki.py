"""The identities of the cluster: one certificate authority, a few certificates, and a token per component.

Clients authenticate by token, because a token file needs no signing. Only TLS servers have certificates.
Each ``up`` creates all of them, and ``down`` removes them with the cluster's state.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.devcluster.plan import DOMAIN, NODE_NAME, Plan

if TYPE_CHECKING:
    from pathlib import Path

LIFETIME_DAYS = 30


@dataclass(frozen=True)
class User:
    """A client of the API server: the name of its kubeconfig, and its user name and groups."""

    name: str
    groups: tuple[str, ...] = ()


USERS = {
    "admin": User("admin", ("system:masters",)),
    "controller-manager": User("system:kube-controller-manager"),
    "scheduler": User("system:kube-scheduler"),
    "kubelet": User(f"system:node:{NODE_NAME}", ("system:nodes",)),
    "proxy": User("system:kube-proxy"),
    # CoreDNS reads only public objects, and a missing role could delay its start, so it is an administrator
    "coredns": User("coredns", ("system:masters",)),
}


def make_certificates(plan: Plan) -> None:
    """Write the authority, the serving certificates and the key that signs service account tokens."""
    plan.pki.mkdir(mode=0o700, parents=True)
    _key(plan.pki, "ca")
    _openssl(
        plan.pki,
        *("req", "-x509", "-new", "-key", "ca.key", "-days", str(LIFETIME_DAYS), "-subj", "/CN=penstock-dev-ca"),
        *("-out", "ca.crt"),
    )
    addresses = [f"IP:{address}" for address in ("127.0.0.1", plan.node_address, plan.service_address)]
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names.append(f"kubernetes.default.svc.{DOMAIN}")
    server_names = [*(f"DNS:{name}" for name in names), *addresses]
    _certificate(plan.pki, "apiserver", "/CN=kube-apiserver", "serverAuth", server_names)
    _certificate(plan.pki, "apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client", "clientAuth", [])
    subject = f"/O=system:nodes/CN=system:node:{NODE_NAME}"
    _certificate(plan.pki, "kubelet", subject, "serverAuth", [f"DNS:{NODE_NAME}", *addresses])
    _openssl(plan.pki, "genrsa", "-out", "service-account.key", "2048")
    _openssl(plan.pki, "rsa", "-in", "service-account.key", "-pubout", "-out", "service-account.pub")


def make_kubeconfigs(plan: Plan) -> None:
    """Write a token and a kubeconfig per user, and the API server's file of tokens."""
    plan.conf.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = base64.b64encode((plan.pki / "ca.crt").read_bytes()).decode()
    lines = []
    for short, user in USERS.items():
        token = secrets.token_hex(24)
        groups = f',"{",".join(user.groups)}"' if user.groups else ""
        lines.append(f"{token},{user.name},{user.name}{groups}\n")
        path = plan.kubeconfig if short == "admin" else kubeconfig(plan, short)
        write_private(path, json.dumps(_kubeconfig(plan, user, token, authority), indent=1))
    write_private(plan.conf / "tokens.csv", "".join(lines))


def kubeconfig(plan: Plan, short: str) -> Path:
    """Return the kubeconfig of a component, by its short name in ``USERS``."""
    return plan.conf / f"{short}.kubeconfig"


def admin_token(plan: Plan) -> str:
    """Return the administrator's token."""
    token: str = json.loads(plan.kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(text)


def _kubeconfig(plan: Plan, user: User, token: str, authority: str) -> dict[str, object]:
    cluster = {"server": plan.server, "certificate-authority-data": authority}
    context = f"penstock-{plan.name}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": user.name, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user.name}}],
    }


def _certificate(directory: Path, name: str, subject: str, usage: str, alternatives: list[str]) -> None:
    _key(directory, name)
    extensions = [f"extendedKeyUsage={usage}", "keyUsage=digitalSignature,keyEncipherment"]
    if alternatives:
        extensions.append(f"subjectAltName={','.join(alternatives)}")
    (directory / f"{name}.ext").write_text("\n".join(extensions) + "\n")
    _openssl(directory, "req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    _openssl(
        directory,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", str(LIFETIME_DAYS), "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
    )


def _key(directory: Path, name: str) -> None:
    _openssl(directory, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")


def _openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
