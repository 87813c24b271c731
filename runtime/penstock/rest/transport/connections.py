"""HTTP connections with limits, so that an unauthenticated client cannot use all connections. The number and the idle
time of connections are bounded.

A connection has 10 s in total to send the head of a request. A client may pause for 10 s between two parts of a body. The TLS handshake has
the same limit. A connection in its handshake counts as a connection that waits for a request. A listener holds a bounded number of
connections, below the limit of open files. At that number, the listener closes the oldest connection that waits for a request. If all
connections have requests in progress, the listener closes the new connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.common.logs.throttle import Throttle
from penstock.common.system.open_files import max_unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
SILENT_S = 10.0
"""Time in seconds for the head of a request, and between two parts of its body."""


class Bounded(Protocol):
    """Connection that counts against the limit of its listener."""

    @property
    def awaits_request(self) -> bool:
        """Return whether no request is in progress."""

    @property
    def peer(self) -> object:
        """Return the address of the client, for the log."""

    def abort(self) -> None:
        """Close the connection at once."""


class Connections:
    """Open connections of one listener, oldest first.

    Args:
        limit: maximum number of open connections.
        silent_s: maximum time in seconds without data.
    """

    def __init__(self, limit: int | None = None, silent_s: float = SILENT_S) -> None:
        self.limit = limit or max_unauthenticated(MAX_CONNECTIONS)
        self.silent_s = silent_s
        self._open: dict[Bounded, None] = {}
        self._throttle = Throttle()

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return the factory of protocols for uvicorn."""

        def make(*args: Any, **named: Any) -> BoundedProtocol:
            return BoundedProtocol(self, *args, **named)

        return make

    def admit(self, protocol: Bounded) -> bool:
        """Record a new connection. At the limit, close the oldest connection that waits for a request. If no connection
        waits for a request, close the new connection and return False.
        """
        if len(self._open) >= self.limit:
            waiting = next((other for other in self._open if other.awaits_request), None)
            self.close(waiting or protocol, "too many connections are open")
            if waiting is None:
                return False
        self._open[protocol] = None
        return True

    def close(self, protocol: Bounded, reason: str) -> None:
        """Close a connection. Log such a close at most once a minute."""
        self.forget(protocol)
        count = self._throttle.due()
        if count:
            logger.warning("REST closes the connection of %s: %s (%d closed so far)", protocol.peer, reason, count)
        protocol.abort()

    def forget(self, protocol: Bounded) -> None:
        self._open.pop(protocol, None)

    def wait_until_closed(self, seconds: float) -> None:
        """Wait until the clients have closed all connections, at most this long."""
        deadline = time.monotonic() + seconds
        while self._open and time.monotonic() < deadline:
            time.sleep(0.02)


class BoundedProtocol(H11Protocol):
    """Connection of a client."""

    def __init__(self, connections: Connections, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._connections = connections
        self._silence: asyncio.TimerHandle | None = None
        self.handshake: Bounded | None = None
        """TLS handshake after which this connection began. In the count of open connections, the connection replaces the handshake."""

    @property
    def awaits_request(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def peer(self) -> object:
        return self.client

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.handshake is not None:
            self._connections.forget(self.handshake)
        if self._connections.admit(self):
            self._expect_more()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE and self.conn.trailing_data[0]:
            self._expect_more()  # the time limit for a head starts with the head's first byte
        elif state is h11.SEND_BODY:
            self._expect_no_more()
            self._expect_more()
        else:
            self._expect_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_more()
        self._connections.forget(self)
        super().connection_lost(exc)

    def _expect_more(self) -> None:
        if self._silence is None:
            self._silence = self.loop.call_later(self._connections.silent_s, self._is_silent)

    def _expect_no_more(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _is_silent(self) -> None:
        self._silence = None
        if self.conn.their_state is h11.SEND_BODY and self.flow.read_paused:
            self._expect_more()  # the server does not read at the moment
        else:
            self._connections.close(self, f"it did not send a complete request within {self._connections.silent_s:g} s")
