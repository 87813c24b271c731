"""A connection from a waiting process to the leader, which ends at the moment when the leader's process ends.

Problem: a heartbeat shows the death of a leader only after the lease duration of some seconds.

Solution: the leader listens at a port, and waiting processes keep a connection to it. No bytes are sent. When the leader's process ends, the
system closes the connection. The waiting process connects again. If the system of the leader's machine *refuses* the connection, the process
has ended, and the waiting process need not wait for the lease. Any other outcome, such as a timeout, proves nothing: the network may be down.
Then only the lease counts. A refusal without an earlier connection proves nothing either, because a firewall may refuse connections.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress

from penstock.jobmanager.process.election.claims import Holder

MAX_CONNECTIONS = 16
"""Maximum number of connections. The oldest connection is closed if another process connects."""
_CONNECT_S = 1.0
_CHECK_S = 0.5
"""Interval in seconds for a change of the leader."""

logger = logging.getLogger(__name__)


class LeaderLink:
    """Port of a process to which the other processes connect. It accepts connections until the process ends."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        port = self._listener.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, name="leader-link", daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends a pending accept
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            if len(self._connections) > MAX_CONNECTIONS:
                self._connections.pop(0).close()


class LinkWatcher:
    """Thread of a waiting process that keeps a connection to the leader.

    Args:
        leader: function that returns the leader, or None while none is known or this process leads.
        on_death: function that is called with the id of a leader whose process has ended.
    """

    def __init__(self, leader: Callable[[], Holder | None], on_death: Callable[[str], object]) -> None:
        self._leader = leader
        self._on_death = on_death
        self._ending = threading.Event()
        self._connected_to = ""
        """Id of the leader to which this process has connected."""

    def start(self) -> LinkWatcher:
        threading.Thread(target=self._run, name="leader-watch", daemon=True).start()
        return self

    def stop(self) -> None:
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            leader = self._leader()
            if leader is None or not leader.link or self._watch(leader):
                self._ending.wait(_CHECK_S)

    def _watch(self, leader: Holder) -> bool:
        """Keep a connection until it ends, or until another process leads. Return whether to pause before the next connection."""
        try:
            connection = connect(leader.link)
        except ConnectionRefusedError:
            if leader.id == self._connected_to:
                self._on_death(leader.id)
            return True
        except OSError:
            return True
        self._connected_to = leader.id
        with closing(connection):
            connection.settimeout(_CHECK_S)
            while not self._ending.is_set() and self._is_current(leader):
                try:
                    if not connection.recv(1):
                        return False
                except TimeoutError:
                    continue
                except OSError:
                    return False
        return True

    def _is_current(self, leader: Holder) -> bool:
        now = self._leader()
        return now is not None and now.id == leader.id


def connect(address: str) -> socket.socket:
    """Connect to a `LeaderLink`.

    Raises:
        ConnectionRefusedError: no process listens at this address.
        OSError: the outcome is unknown.
    """
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S)
