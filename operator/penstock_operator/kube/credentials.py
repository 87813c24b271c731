"""Access to the API server with the pod's service account or a kubeconfig file. The loaders of the official client read
both kinds of credentials.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock_operator.errors import KubeError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Credentials:
    """The API server, and the credentials of this process."""

    server: str
    tls: ssl.SSLContext | bool = True
    token: str | None = None
    configuration: Configuration | None = None
    """Configuration of the official client. It reloads a rotated token, and runs the credential plugin of a
    kubeconfig.
    """
    namespace: str = "default"
    in_cluster: bool = False
    """Whether the credentials are those of the pod's service account."""

    def headers(self) -> dict[str, str]:
        """Return the current Authorization header."""
        if self.configuration is not None:
            value = self.configuration.get_api_key_with_prefix("authorization", alias="BearerToken")
        else:
            value = f"Bearer {self.token}" if self.token else None
        return {"Authorization": value} if value else {}


def find_credentials(kubeconfig: str | None = None) -> Credentials:
    """Find the credentials. The first of these that exists is used: `kubeconfig`, `KUBECONFIG`, the pod's service
    account, `~/.kube/config`.

    Raises:
        KubeError: no credentials exist, or they cannot be used. The message names the file and the problem.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if chosen:
        return from_kubeconfig(Path(chosen.split(os.pathsep)[0]))
    if NAMESPACE_FILE.is_file():
        return from_service_account()
    return from_kubeconfig(Path.home() / ".kube" / "config")


def from_service_account() -> Credentials:
    """Return the credentials of the service account that the kubelet mounts into every pod."""
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException as error:
        msg = f"the pod's service account cannot be used: {error}"
        raise KubeError(msg) from error
    return _credentials(configuration, NAMESPACE_FILE.read_text().strip(), in_cluster=True)


def from_kubeconfig(path: Path) -> Credentials:
    """Return the credentials of the current context of a kubeconfig."""
    if not path.is_file():
        msg = f"the kubeconfig {path} does not exist. Run inside a cluster, or set KUBECONFIG"
        raise KubeError(msg)
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        config.load_kube_config(str(path), client_configuration=configuration, persist_config=False)
        _, current = config.list_kube_config_contexts(str(path))
    except config.ConfigException as error:
        msg = f"the kubeconfig {path} cannot be used: {error}"
        raise KubeError(msg) from error
    return _credentials(configuration, current["context"].get("namespace", "default"))


def _credentials(configuration: Configuration, namespace: str, *, in_cluster: bool = False) -> Credentials:
    return Credentials(
        configuration.host,
        _tls(configuration),
        configuration=configuration,
        namespace=namespace,
        in_cluster=in_cluster,
    )


def _tls(configuration: Configuration) -> ssl.SSLContext | bool:
    if configuration.host.startswith("http://"):
        return False
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if not configuration.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
