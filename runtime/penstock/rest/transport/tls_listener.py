"""Acceptance of TLS connections. A client that has not completed its handshake counts against the limit of connections.

`loop.create_server(ssl=...)` passes a connection to the protocol only after the handshake, so the limit would not count a connection during
its handshake.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.common.logs.throttle import Throttle

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from penstock.rest.transport.connections import BoundedProtocol, Connections

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5
"""Pause in seconds after a failed accept, for example because no file descriptor is left."""
_SHUTDOWN_S = 2.0
"""Time in seconds for a client to respond to the end of the TLS connection."""


async def accept_tls(
    listener: socket.socket,
    context: ssl.SSLContext,
    make_protocol: Callable[[], BoundedProtocol],
    connections: Connections,
) -> None:
    """Accept connections until the task is cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    handshakes: set[Handshake] = set()
    throttle = Throttle()
    try:
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                if throttle.due():
                    logger.warning("the REST API cannot accept a connection: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            handshake = Handshake(accepted, connections)
            if connections.admit(handshake):
                handshakes.add(handshake)
                handshake.begin(context, make_protocol, handshakes.discard)
    finally:
        for handshake in list(handshakes):
            handshake.abort()


class Handshake:
    """Connection from its accept to the end of its TLS handshake."""

    def __init__(self, accepted: socket.socket, connections: Connections) -> None:
        self._socket = accepted
        self._connections = connections
        self._task: asyncio.Task[None] | None = None
        self._has_started = False

    @property
    def awaits_request(self) -> bool:
        return True

    @property
    def peer(self) -> object:
        with suppress(OSError):
            return self._socket.getpeername()
        return None

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if not self._has_started:
            self._socket.close()  # later, the transport owns the socket, and the end of the cancelled task closes it

    def begin(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], BoundedProtocol],
        ended: Callable[[Handshake], object],
    ) -> None:
        self._task = asyncio.create_task(self._shake_hands(context, make_protocol))
        self._task.add_done_callback(lambda _: ended(self))

    async def _shake_hands(self, context: ssl.SSLContext, make_protocol: Callable[[], BoundedProtocol]) -> None:
        def create_protocol() -> BoundedProtocol:
            protocol = make_protocol()
            protocol.handshake = self
            return protocol

        self._has_started = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                create_protocol,
                self._socket,
                ssl=context,
                ssl_handshake_timeout=self._connections.silent_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except (OSError, ValueError) as error:
            logger.debug("TLS handshake with %s failed: %s", self.peer, error)
        finally:
            self._connections.forget(self)
