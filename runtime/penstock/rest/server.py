"""The REST server: uvicorn in a thread of the JobManager's process."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn

from penstock.common.errors import ClusterError
from penstock.rest.app import create_app
from penstock.rest.auth import AllowedHosts, TokenFile
from penstock.rest.leader_proxy import LeaderProxy
from penstock.rest.transport.connections import BoundedProtocol, Connections
from penstock.rest.transport.listener import listen, server_url
from penstock.rest.transport.tls import RenewedContext, TlsFiles
from penstock.rest.transport.tls_listener import accept_tls

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from penstock.rest.gateway import ClusterGateway, Jars, Programs

START_SECONDS = 15.0
_TICK_S = 1.0
KEEP_ALIVE_SECONDS = 75
"""Time in seconds after which the server closes an idle connection. Clients close idle connections earlier (httpx after 5 s). A client that
sends a request while the server closes the connection gets no response.
"""
STOP_SECONDS = 5.0
"""Time in seconds for pending requests when the server stops."""


class RestServer:
    """Server of a gateway. `start()` returns when the server responds to requests, and `stop()` returns when the server has ended.

    Args:
        host: address to listen on, such as `localhost` or `0.0.0.0`.
        port: 0 means any free port. After `start`, the attribute `port` has the number.
        token_file: file with the bearer token. None means that no token is required.
        allowed_hosts: names that requests may use, in addition to addresses, `localhost`, `host` and this machine's name. If a
            token is set and no names are given, any name is allowed, because a page of another site has no token.
        reader_token_file: file with a token that permits only reading.
        programs: receiver of programs in a session cluster.
        connections: limits of the server's connections. None means the default limits.
        tls: certificate and key. None means that the server uses plain HTTP.
        jars: programs that clients upload to a session cluster.
        leader, leader_tls: arguments of `LeaderProxy`, for a master that may be on standby.

    Raises:
        ClusterError: the token file cannot be read.
        CertificateError: the certificate or its key cannot be used.
    """

    def __init__(
        self,
        gateway: ClusterGateway,
        host: str = "localhost",
        port: int = 8081,
        token_file: str | None = None,
        allowed_hosts: Sequence[str] = (),
        reader_token_file: str | None = None,
        programs: Programs | None = None,
        connections: Connections | None = None,
        tls: TlsFiles | None = None,
        jars: Jars | None = None,
        leader: Callable[[], str | None] | None = None,
        leader_tls: ssl.SSLContext | bool = True,
    ) -> None:
        self.host = host
        self.address = host
        """Numeric address, once the server listens."""
        self.port = port
        token = None if token_file is None else TokenFile(token_file)
        hosts = AllowedHosts([host, *allowed_hosts]) if token is None or allowed_hosts else None
        reader = None if reader_token_file is None else TokenFile(reader_token_file)
        self._closing = threading.Event()
        app: Any = create_app(gateway, token, hosts, reader=reader, closing=self._closing, programs=programs, jars=jars)
        self._app = app if leader is None else LeaderProxy(app, leader, leader_tls)
        self._connections = connections or Connections()
        self._tls = None if tls is None else RenewedContext(tls)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Return the URL for clients on this machine."""
        return server_url(self.host, self.port, tls=self._tls is not None)

    def start(self, listener: socket.socket | None = None) -> RestServer:
        """Start the server and return it.

        Args:
            listener: socket that already accepts connections. None means a new socket on `host` and `port`.

        Raises:
            ClusterError: the address cannot be used, or the port is taken.
        """
        listener = listener or listen(self.host, self.port)
        self.address, self.port = listener.getsockname()[:2]
        config = uvicorn.Config(
            self._app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(STOP_SECONDS),
            ws="none",
            http=self._connections.protocol(),  # type: ignore[arg-type]  # uvicorn calls this function like a protocol class
        )
        server = _Server(config, self._tls, self._connections)
        self._server = server
        self._thread = threading.Thread(target=server.run, args=([listener],), name="rest-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise ClusterError(
                    f"the REST server on {self.url} did not start", remedy="the log of this process has the reason"
                )
            time.sleep(0.01)
        return self

    def stop(self, patience_s: float = 0.0) -> None:
        """Finish pending requests, then close. The method may be called twice, and from a request's thread.

        Args:
            patience_s: time in seconds for clients that poll to read how the job has ended, and to close their connections.
        """
        server, self._server = self._server, None
        if server is not None:
            self._connections.wait_until_closed(patience_s)
        self._closing.set()
        if server is None:
            return
        server.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS + 2)

    def __enter__(self) -> RestServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """Server that wakes up once a second, to update the date in responses. uvicorn's own server wakes up ten times a second."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None, connections: Connections) -> None:
        super().__init__(config)
        self._ends = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls, self._connections = tls, connections
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        self.servers = []
        self._accepting = [
            asyncio.create_task(accept_tls(listener, self._tls, self._make_protocol, self._connections))
            for listener in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    def _make_protocol(self) -> BoundedProtocol:
        return BoundedProtocol(
            self._connections, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ends.wait(), _TICK_S)

    def end(self) -> None:
        """Stop the server. Any thread may call it."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._ends.set)
