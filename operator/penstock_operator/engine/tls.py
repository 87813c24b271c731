"""HTTP clients for masters that serve TLS, one client for each CA."""

from __future__ import annotations

import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING

import httpx

from penstock_operator.connections import connection_pool
from penstock_operator.errors import EngineUnreachable

if TYPE_CHECKING:
    from penstock_operator.engine.client import MasterTls

MOST_CAS = 256
"""Maximum number of open clients. A new client replaces the least recently used client."""


class TlsClients:
    """Pool of clients that verify the certificate and the host name of a master with the CA of the job's Secret."""

    def __init__(self, timeout: httpx.Timeout | float, most: int) -> None:
        self._timeout, self._most = timeout, most
        self._clients: OrderedDict[str, httpx.AsyncClient] = OrderedDict()
        self._closing: list[httpx.AsyncClient] = []

    def client(self, tls: MasterTls) -> httpx.AsyncClient:
        """Return the client for a CA.

        Raises:
            EngineUnreachable: the CA is not PEM.
        """
        found = self._clients.get(tls.ca)
        if found is None:
            transport = connection_pool(self._most, _context(tls.ca))
            found = httpx.AsyncClient(timeout=self._timeout, trust_env=False, transport=transport)
            self._clients[tls.ca] = found
            if len(self._clients) > MOST_CAS:
                self._closing.append(self._clients.popitem(last=False)[1])
        self._clients.move_to_end(tls.ca)
        return found

    async def close(self) -> None:
        """Close all connections."""
        for client in (*self._clients.values(), *self._closing):
            await client.aclose()


def _context(ca: str) -> ssl.SSLContext:
    if not ca:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        msg = f"ca.crt in the Secret of the master's certificate is not PEM: {error}"
        raise EngineUnreachable(msg) from None
    return context
