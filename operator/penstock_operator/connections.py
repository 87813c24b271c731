"""Connections for httpx, kept by aiohttp: httpx's own pool looks through all its connections for every request, which took
half of the operator's CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

if TYPE_CHECKING:
    import ssl

KEPT = 90.0
"""Seconds for which a connection that is not used is kept: a TLS handshake costs more than ten requests."""


def connections(most: int, tls: ssl.SSLContext | bool = True) -> httpx.AsyncBaseTransport:
    """At most so many at a time; a request for which there is none waits as long as its timeout says."""
    limits = httpx.Limits(max_connections=most, keepalive_expiry=KEPT)
    return _Transport(verify=tls, trust_env=False, limits=limits)


class _Transport(AiohttpTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except aiohttp.ClientError as error:  # the few that have no name of httpx's: an answer that is not HTTP, say
            raise httpx.RemoteProtocolError(str(error), request=request) from error
