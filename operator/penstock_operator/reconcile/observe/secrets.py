"""Access to Secrets by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.engine.client import MasterTls
from penstock_operator.kube.cluster import SECRET
from penstock_operator.resources.named_secrets import secret_texts
from penstock_operator.resources.names import CA_KEY

if TYPE_CHECKING:
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.ports import Ports


async def read_master_tls(ports: Ports, namespace: str, running: Running) -> MasterTls | None:
    """Return the TLS settings for the master of an incarnation, or None for plain HTTP.

    Take the settings from the status, because the spec may already contain other settings.
    """
    if not running.rest_tls:
        return None
    return MasterTls((await read_secret(ports, namespace, running.rest_tls)).get(CA_KEY, ""))


async def read_secret(ports: Ports, namespace: str, name: str) -> dict[str, str]:
    """Return the content of a Secret, or an empty dict if it does not exist. Skip values that are not text, for
    example a keystore.
    """
    return secret_texts(await ports.cluster.get(SECRET, namespace, name))
