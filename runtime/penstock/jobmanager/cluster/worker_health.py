"""Whether a deployed worker is alive and of use, for whoever restarts and counts workers: `/healthz` and `/readyz`.

Answers are of one line and need no secret. A connection has two seconds, however slowly it sends; nothing is read beyond the
request's head.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.common.config import options
from penstock.common.configuration import Configuration

PATIENCE_S = 2.0
PORT_VARIABLE = "PENSTOCK_WORKER_HEALTH_PORT"
"""By it the operator tells engines where to answer: those that do not know it yet would refuse a key."""


def health_port(settings: Configuration) -> int:
    """Where a worker answers; -1: nowhere.

    Raises:
        InvalidJob: what is set is no port.
    """
    option, given = options.WORKER_HEALTH_PORT, os.environ.get(PORT_VARIABLE)
    if given and not settings.contains_key(option.key):
        return Configuration({option.key: given}).get(option)
    return settings.get(option)


class WorkerHealth:
    """Answers until the process ends.

    Args:
        port: on all addresses; 0: any that is free.
        is_alive: the worker's loop turns.
        is_ready: it is registered with a master.
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

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # who hangs up or sends what is no HTTP is of no interest

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
