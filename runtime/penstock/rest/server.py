"""The REST server: uvicorn in a thread of the JobManager's process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from penstock.common.errors import ClusterError
from penstock.rest.app import create_app
from penstock.rest.auth import AllowedHosts, TokenFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.rest.gateway import ClusterGateway, Programs

START_SECONDS = 15.0
_TICK_S = 1.0
KEEP_ALIVE_SECONDS = 75
"""For an idle connection. More than clients keep one (httpx 5 s): who writes to one that is just being closed gets no answer."""
STOP_SECONDS = 5.0
"""Time for requests under way when the server stops."""


class RestServer:
    """Serves a gateway. `start()` returns when requests are answered; `stop()` when none is any more.

    Args:
        host: address to listen on, such as `localhost` or `0.0.0.0`.
        port: 0 = any free one; see `port` after `start`.
        token_file: file with the bearer token; None = no token is asked for.
        allowed_hosts: names it may be asked for by, besides addresses, `localhost`, `host` and this machine's name. With a
            token any name will do unless some are given: a page of another site has no token.
        reader_token_file: file with a token that may only look.
        programs: of a session cluster.

    Raises:
        ClusterError: the token file cannot be read.
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
    ) -> None:
        self.host = host
        self.port = port
        token = None if token_file is None else TokenFile(token_file)
        hosts = AllowedHosts([host, *allowed_hosts]) if token is None or allowed_hosts else None
        reader = None if reader_token_file is None else TokenFile(reader_token_file)
        self._closing = threading.Event()
        self._app = create_app(gateway, token, hosts, reader=reader, closing=self._closing, programs=programs)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        host = "localhost" if self.host in ("", "0.0.0.0", "::") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> RestServer:
        """
        Raises:
            ClusterError: the address cannot be used, or the port is taken.
        """
        listener = _listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(STOP_SECONDS),
            ws="none",
        )
        server = _Server(config)
        self._server = server
        self._thread = threading.Thread(target=server.run, args=([listener],), name="rest-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise ClusterError(f"the REST server on {self.url} did not start", remedy="see the log of this process")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Finish what is under way, then close. May be called twice, and from a request's own thread."""
        self._closing.set()
        server, self._server = self._server, None
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
    """Wakes up once a second, for the date that answers bear. uvicorn's own looks ten times a second whether it is to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ends = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ends.wait(), _TICK_S)

    def end(self) -> None:
        """From any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._ends.set)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ClusterError(
            f"the REST API cannot listen on {host}: {error}",
            remedy="set rest.bind-address to an address of this machine",
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ClusterError(
            f"the REST API cannot listen on {host}:{port}: {error.strerror or error}",
            remedy="stop what uses the port (another JobManager?), or set rest.port to a free one, or 0 for any",
        ) from None
    return listener
