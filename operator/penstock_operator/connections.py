"""Connections for httpx from the pool of aiohttp. The pool of httpx searches all its connections for every request,
which took half of the operator's CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

if TYPE_CHECKING:
    import ssl

KEEPALIVE_SECONDS = 90.0
"""Seconds for which an idle connection is kept. A TLS handshake costs more than ten requests."""


def connection_pool(limit: int, tls: ssl.SSLContext | bool = True) -> httpx.AsyncBaseTransport:
    """Return a pool with a maximum number of connections. If all are in use, a request waits until its timeout."""
    limits = httpx.Limits(max_connections=limit, keepalive_expiry=KEEPALIVE_SECONDS)
    return _Transport(verify=tls, trust_env=False, limits=limits)


class _Transport(AiohttpTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except aiohttp.ClientError as error:  # errors without an httpx class, for example a response that is not HTTP
            raise httpx.RemoteProtocolError(str(error), request=request) from error
