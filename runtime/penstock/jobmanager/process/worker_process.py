"""The process of a deployed TaskManager (`penstock worker`): a Spark Worker for as long as its master lives.

Spark's Worker is patient: a master that does not listen yet is asked again after 5 to 15 s, and one that has gone is
waited for in the same way, under an address that was looked up once. So the Worker is started when the master listens, and
when the master has gone it is ended, with its executors, which are of no use to the next master; then all begins anew. That
the master has gone is told by a connection of its own, which ends with it. It is a TLS connection, as the master takes no
others, and who listens there and is not of this cluster is not taken for the master.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

LOOK_S = 0.25
"""Between two looks for a master that does not listen."""
CONNECT_S = 2.0
WATCH_S = 0.5
STUCK_S = 60.0
"""More than a name look-up and a connection attempt take."""

logger = logging.getLogger(__name__)


class Child(Protocol):
    """The Worker's process, in a session of its own."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class WorkerProcess:
    """Runs Workers one after the other.

    Args:
        master: `host:port`; the host is looked up anew each time.
        start: starts a Worker for a master at `address:port`.
        tls: takes the cluster's certificate only; None: the master speaks no TLS (tests).
        linger_s: how long a Worker may take to end before it is killed.
    """

    def __init__(
        self, master: str, start: Callable[[str], Child], linger_s: float = 5.0, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = master.removeprefix("spark://").rpartition(":")
        self._host, self._port = host, int(port)
        self._start = start
        self._linger_s = linger_s
        self._ending = False
        self._tls = tls
        self._told = False
        self._turned_at = time.monotonic()
        self._running = False

    @property
    def is_alive(self) -> bool:
        """The loop turns: whatever it waits for takes less than `STUCK_S`."""
        return time.monotonic() - self._turned_at < STUCK_S

    @property
    def is_ready(self) -> bool:
        """A Worker runs, of a master that is there."""
        return self._running

    def end(self, *_: object) -> None:
        """Come to an end; also a signal's handler."""
        self._ending = True

    def run(self) -> int:
        """Until `end` (0), or until a Worker ends by itself while its master is there (its exit code, 1 at least)."""
        waiting = False
        while not self._ending:
            self._turned_at = time.monotonic()
            connection = self._connect()
            if connection is None:
                if not waiting:
                    logger.info("waiting for the master at %s:%d", self._host, self._port)
                waiting = True
                time.sleep(LOOK_S)
                continue
            waiting = False
            with connection:
                address = connection.getpeername()[0]
                logger.info("the master listens at %s:%d", address, self._port)
                child = self._start(f"{address}:{self._port}")
                self._running = True
                try:
                    if not self._watch(child, connection):
                        return child.wait() or 1
                finally:
                    self._running = False
                    self._stop(child)
            if not self._ending:
                logger.info("the master at %s has gone", address)
        return 0

    def _connect(self) -> socket.socket | None:
        try:
            for family, kind, proto, _, where in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
                connection = socket.socket(family, kind, proto)
                connection.settimeout(CONNECT_S)
                try:
                    connection.connect(where)
                    if self._tls is not None:
                        connection = self._tls.wrap_socket(connection)
                except ssl.SSLError as error:
                    connection.close()
                    self._tell_stranger(where[0], error)
                    continue
                except OSError:
                    connection.close()
                    continue
                self._told = False
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
                return connection
        except OSError:
            return None
        return None

    def _tell_stranger(self, address: object, error: ssl.SSLError) -> None:
        if not self._told:
            self._told = True
            logger.error(
                "who listens at %s:%d does not prove to be this cluster's master (%s): does security.spark.secret-file "
                "name the same secret there?",
                address,
                self._port,
                error,
            )

    def _watch(self, child: Child, connection: socket.socket) -> bool:
        """Until the master has gone or the end was asked for (True), or the Worker has ended (False)."""
        while not self._ending:
            self._turned_at = time.monotonic()
            readable, _, _ = select.select([connection], [], [], WATCH_S)
            if readable:
                try:
                    connection.setblocking(False)
                    if not connection.recv(4096):
                        return True
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass  # TLS has something to say, the master has not
                except OSError:
                    return True
            if child.poll() is not None:
                return self._ending
        return True

    def _stop(self, child: Child) -> None:
        """End the Worker, then whatever is left of its session: executors and their Python workers."""
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(self._linger_s)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
        kill_session(child.pid)


def kill_session(session: int) -> None:
    """SIGKILL every process of a session."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    os.kill(int(folder.name), signal.SIGKILL)
            except (OSError, IndexError):
                continue  # it has just ended
