"""REST of `python job.py`. Its imports take longer than a small job, so its server starts with the first client.

The port is open and commands find the token as soon as the job is submitted. A client that connects before the server runs waits about
half a second. Without a client, the server starts `SERVE_AFTER_S` after the first job.

If the configuration has TLS or other tokens than the generated token, the server starts at once, in parallel with the
cluster. The job waits until the server runs. So an unusable file is reported before the job does any work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.credentials.local_token import LocalToken, is_loopback
from penstock.jobmanager.process.session.session import Session
from penstock.rest.transport.listener import Listener

if TYPE_CHECKING:
    from penstock.rest.server import RestServer

SERVE_AFTER_S = 10.0
"""Time in seconds after which the server starts without a client. Even on a slow machine, the job starts in less time."""
logger = logging.getLogger(__name__)


class EmbeddedRest:
    """REST server of a program's session.

    Args:
        token: token of the API. Empty means a new token.
    """

    def __init__(self, session: Session, token: str) -> None:
        self._session = session
        self._token = token
        self._listener: Listener | None = None
        self._serving: Future[RestServer | None] | None = None
        self._cleaning = ExitStack()

    @property
    def is_started(self) -> bool:
        return self._serving is not None

    @property
    def url(self) -> str:
        """Return the URL of the API, or an empty string if the API is disabled."""
        if self._listener is not None:
            return self._listener.url
        server = self._server()
        return "" if server is None else server.url

    @property
    def port(self) -> int:
        """Return the port of the API, or -1 if the API is disabled."""
        if self._listener is not None:
            return int(self._listener.port)
        server = self._server()
        return -1 if server is None else server.port

    def start(self, conf: Configuration) -> None:
        """Open the port, and start the server in a thread.

        Raises:
            ClusterError: the address cannot be used.
        """
        has_token = _has_local_token(conf)
        if has_token and not conf.get(options.REST_SSL_ENABLED) and not conf.get(options.REST_READER_TOKEN_FILE):
            self._serving = _in_thread(self._waiting_server(conf))
        elif has_token:
            self._serving = _in_thread(lambda: self._server_with_token(conf))
        else:
            self._serving = _in_thread(lambda: self._session.serve(conf, fall_back=True))

    def wait(self) -> None:
        """Wait for a server that starts at once.

        Raises:
            PenstockError: the server cannot start.
        """
        if self._listener is None:
            self._server()

    def stop(self, read_outcome_s: float) -> None:
        """Stop the server. The method may be called twice.

        Args:
            read_outcome_s: time in seconds for clients to read how the job has ended.
        """
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        serving, self._serving = self._serving, None
        server = None if serving is None or serving.exception() else serving.result()
        if server is not None:
            server.stop(read_outcome_s)
        self._cleaning.close()

    def _server(self) -> RestServer | None:
        return None if self._serving is None else self._serving.result()

    def _waiting_server(self, conf: Configuration) -> Callable[[], RestServer | None]:
        listener = Listener(conf.get(options.REST_BIND_ADDRESS), conf.get(options.REST_PORT))
        self._listener = listener
        token = self._new_token()
        token.publish(listener.address, listener.port)
        settings = Configuration(conf).set(options.REST_TOKEN_FILE, str(token.path))

        def serve() -> RestServer | None:
            if not listener.wait_for_client(SERVE_AFTER_S):
                return None
            try:
                return self._session.serve(settings, listener=listener.socket)
            except Exception:
                logger.exception("the REST server on %s did not start", listener.url)
                raise

        return serve

    def _server_with_token(self, conf: Configuration) -> RestServer:
        token = self._new_token()
        settings = Configuration(conf).set(options.REST_TOKEN_FILE, str(token.path))
        server = self._session.serve(settings, fall_back=True)
        assert server is not None
        token.publish(server.address, server.port)
        return server

    def _new_token(self) -> LocalToken:
        token = LocalToken(self._token)
        self._cleaning.callback(token.remove)
        return token


def _has_local_token(conf: Configuration) -> bool:
    """Return whether the API requires a generated token, which is published in a file for the commands of this user."""
    return (
        conf.get(options.REST_PORT) >= 0
        and not conf.get(options.REST_TOKEN_FILE)
        and conf.get(options.REST_LOCAL_TOKEN)
        and is_loopback(conf.get(options.REST_BIND_ADDRESS))
    )


def _in_thread(serve: Callable[[], RestServer | None]) -> Future[RestServer | None]:
    """Call a function in a thread that does not keep the process alive."""
    serving: Future[RestServer | None] = Future()

    def run() -> None:
        try:
            serving.set_result(serve())
        except BaseException as error:  # `wait` raises the error
            serving.set_exception(error)

    threading.Thread(target=run, name="rest-start", daemon=True).start()
    return serving
