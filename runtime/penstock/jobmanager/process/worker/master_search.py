"""The search of a worker for masters: a thread that connects, because a connection attempt may take seconds.

Several masters may share one address, such as the virtual address of a Kubernetes Service. So the thread also tries an address again that
already has a connection. A master that the worker is already connected to answers with its role, and the worker closes the new connection.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from penstock.jobmanager.cluster.members.registration import PURPOSE, Register
from penstock.taskmanager.control.channel import ControlConnection

CONNECT_S = 5.0
STRANGE = 4
"""Number of consecutive connections that end before the master authenticates. A master that is shutting down causes fewer such connections.
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A new connection to a master."""

    connection: ControlConnection
    address: str
    own_address: str
    known: tuple[str, ...]
    """Ids of the masters that the registration named. Such a master ignores the connection."""


class MasterSearch:
    """Thread that looks for one master at a time, at the pace that the worker sets.

    Args:
        masters: addresses `host:port`. Hosts are resolved again each time.
        register: function that returns the first frame. Its arguments are the address of this machine, and the ids of the connected masters.
        on_found: function that is called when `take` has a result.
    """

    def __init__(
        self,
        masters: list[str],
        secret: str,
        register: Callable[[str, tuple[str, ...]], Register],
        on_found: Callable[[], object],
    ) -> None:
        self._masters = masters
        """Addresses in the order of connection attempts. The last one to which the worker was connected is at the end."""
        self._secret = secret
        self._register = register
        self._on_found = on_found
        self._found: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._pause_s: float | None = None
        """Time between two rounds of attempts in seconds. None means not to search."""
        self._linked: Collection[str] = ()
        self._known: tuple[str, ...] = ()
        self._is_taken = True
        """Whether the last result was taken. The search continues only then."""
        self._ending = False
        self._strange = 0
        self._is_logged = False
        self._has_failed = False
        """Whether an unexpected error was logged."""

    def start(self) -> MasterSearch:
        threading.Thread(target=self._run, name="master-search", daemon=True).start()
        return self

    def stop(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        while (found := self.take()) is not None:
            found.connection.close()

    def want(self, pause_s: float | None, linked: Collection[str], known: tuple[str, ...]) -> None:
        """Set the pace of the search.

        Args:
            pause_s: time between two rounds of attempts in seconds. None means not to search.
            linked: addresses of the connected masters.
            known: ids of the connected masters.
        """
        with self._changed:
            is_faster = pause_s is not None and (self._pause_s is None or pause_s < self._pause_s)
            self._pause_s, self._linked, self._known = pause_s, linked, known
            if is_faster:
                self._changed.notify()

    def take(self) -> Found | None:
        """Return a new connection, or None."""
        if self._found.empty():
            return None
        found = self._found.get()
        with self._changed:
            self._is_taken = True
            self._pause_s = None  # the caller first decides whether it needs another master
        return found

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ending and (self._pause_s is None or not self._is_taken):
                    self._changed.wait()
                if self._ending:
                    return
                linked, known = self._linked, self._known
            found = self._look_safely(linked, known)
            with self._changed:
                if self._ending:
                    if found is not None:
                        found.connection.close()
                    return
                if found is not None:
                    self._is_taken, self._is_logged = False, False
                    self._found.put(found)
                    self._on_found()
                    continue
                if not linked and not self._is_logged:
                    self._is_logged = True
                    logger.info("waiting for the master at %s", ", ".join(sorted(self._masters)))
                self._changed.wait(self._pause_s)

    def _look_safely(self, linked: Collection[str], known: tuple[str, ...]) -> Found | None:
        """Look for a master. An unexpected error, such as an invalid host name, must not end the thread."""
        try:
            return self._look(linked, known)
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                logger.exception(
                    "the search for the master at %s fails (%s). Check the addresses in --master. The search continues",
                    ", ".join(sorted(self._masters)),
                    error,
                )
            return None

    def _look(self, linked: Collection[str], known: tuple[str, ...]) -> Found | None:
        every = [(master, *place) for master in self._masters for place in _resolve(master)]
        # Try a connected address only if there is no other one, because it may be the address of several masters.
        others = [place for place in every if place[1] not in linked]
        for master, address, family, where in others or every:
            found = self._connect(address, family, where, known)
            if found is not None:
                self._masters = [*(other for other in self._masters if other != master), master]
                return found
        return None

    def _connect(self, address: str, family: int, where: Any, known: tuple[str, ...]) -> Found | None:
        try:
            own = own_address(where, family)
            hello = self._register(own, known)
            connection = ControlConnection(address, self._secret, hello, purpose=PURPOSE, connect_s=CONNECT_S)
        except ConnectionRefusedError:
            self._strange = 0
            return None
        except ConnectionError as error:
            self._log_foreign_peer(address, error)
            return None
        except OSError:
            return None
        self._strange = 0
        connection.enable_keepalive()
        return Found(connection, address, own, known)

    def _log_foreign_peer(self, address: str, error: ConnectionError) -> None:
        self._strange += 1
        if self._strange == STRANGE:
            logger.error(
                "the server at %s cannot prove that it is the master of this cluster (%s). Check that security.spark.secret-file "
                "has the same secret there",
                address,
                error,
            )


def _resolve(master: str) -> list[tuple[str, int, Any]]:
    """Return address, family and socket address of each place of a master. The list is empty if the name is unknown."""
    host, _, port = master.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(f"{where[0]}:{port}", family, where) for family, _, _, _, where in found]


def own_address(peer: Any, family: int = socket.AF_INET) -> str:
    """Return the address of this machine that a peer sees. The peer is a tuple (host, port).

    Raises:
        OSError: the peer is unreachable.
    """
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])
