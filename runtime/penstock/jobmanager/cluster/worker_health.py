"""Health checks of a deployed worker, for Kubernetes and the operator: `/healthz` and `/readyz`.

Responses have one line and need no secret. A connection ends after 2 s, even if the client sends slowly. The server reads only the
head of a request.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.common.config import options
from penstock.common.configuration import Configuration

PATIENCE_S = 2.0
MAX_CONNECTIONS = 64
"""Maximum number of simultaneous connections. Further connections are closed at once. Each connection has a thread for at most `PATIENCE_S`
seconds.
"""
PORT_VARIABLE = "PENSTOCK_WORKER_HEALTH_PORT"
"""Environment variable in which the operator sets the port. Older engines would refuse a setting that they do not know."""


def health_port(settings: Configuration) -> int:
    """Return the port of a worker's health checks, or -1 if they are disabled.

    Raises:
        InvalidJob: the setting is not a valid port.
    """
    option, given = options.WORKER_HEALTH_PORT, os.environ.get(PORT_VARIABLE)
    if given and not settings.contains_key(option.key):
        return Configuration({option.key: given}).get(option)
    return settings.get(option)


class WorkerHealth:
    """Server of health checks, which runs until the process ends.

    Args:
        port: port on all addresses. 0 means any free port.
        is_alive: function that returns whether the worker's loop runs.
        is_ready: function that returns whether the worker is registered with a master.
    """

    def __init__(self, port: int, is_alive: Callable[[], bool], is_ready: Callable[[], bool]) -> None:
        answers = {"/healthz": is_alive, "/readyz": is_ready}

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                over = threading.Timer(PATIENCE_S, self._end)
                over.daemon = True
                over.start()
                try:
                    super().handle()
                finally:
                    over.cancel()

            def _end(self) -> None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

            def do_GET(self) -> None:
                ask = answers.get(self.path.partition("?")[0])
                good = ask is not None and ask()
                body = b"ok\n" if good else b"no\n"
                self.send_response(404 if ask is None else 200 if good else 503)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        places = threading.BoundedSemaphore(MAX_CONNECTIONS)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = MAX_CONNECTIONS  # a probe that does not fit into the queue is delayed by a second

            def process_request(self, request: Any, client_address: Any) -> None:
                if places.acquire(blocking=False):
                    super().process_request(request, client_address)
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    places.release()

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # ignore a client that closes the connection or does not send HTTP

        self._server = Server(("", port), Handler)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> WorkerHealth:
        threading.Thread(target=self._server.serve_forever, name="worker-health", daemon=True).start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
