"""A server of encrypted connections (see `taskmanager.control.sealed_channel`): one thread, and one connection for each peer.

Any client can connect, so an unauthenticated client must cost little. Such a client gets a few hundred bytes, 10 s, and one of 1024 places.
If all places are taken, a new client replaces the oldest one. A slow peer does not block other peers: the server
buffers the data that the peer does not read at once. If the peer reads nothing for 10 s, the server closes the
connection.

The thread survives errors of connections. An error of a connection closes only this connection, and the log names it. If the thread
itself ends, `failure` contains the reason.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from penstock.common.logs.throttle import Throttle
from penstock.common.system.open_files import max_unauthenticated
from penstock.taskmanager.control.sealed_channel import (
    CONTROL_CHANNEL,
    HELLO_BYTES,
    MAX_FRAME,
    NotAuthentic,
    Opener,
    Sealer,
    derive_keys,
)

logger = logging.getLogger(__name__)

GREETING_S = 10.0
"""Time in seconds in which a client must authenticate."""
MAX_UNAUTHENTICATED = 1024
"""Maximum number of clients that authenticate at the same time. 256 slots of 4 levels need that many. The number is lower if the
process may open only few files.
"""
STALLED_S = 10.0
"""Time in seconds without progress after which a peer with pending data is disconnected."""
_GREETING_BYTES = 512
"""Maximum size of the first frame, in bytes."""
_RECEIVE_BYTES = 1 << 20
_TURN_S = 0.2


class Peer:
    """One connection. Any thread may call `post`. Only the server's thread may call the other methods."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.socket = connection
        self.address = address
        self.name: object = None
        """Identity of the peer, after it is known."""
        self.since = time.monotonic()
        self.server_random = secrets.token_bytes(HELLO_BYTES)
        self.opener: Opener | None = None
        self.sealer: Sealer | None = None
        self.unread = b""
        """Part of the client's random bytes that was received so far."""
        self._lock = threading.Lock()
        self._outgoing = bytearray()
        self._progress = 0.0
        """Time at which some of `_outgoing` was last sent. It has no meaning if `_outgoing` is empty."""
        self._closed = False

    def post(self, body: bytes) -> bool:
        """Send, or buffer the part that cannot be sent at once. Return False if the connection is closed."""
        assert self.sealer is not None
        with self._lock:
            if self._closed:
                return False
            if not self._outgoing:
                self._progress = time.monotonic()
            self._outgoing += self.sealer.seal(body)
            return self._push()

    def flush(self) -> bool:
        """Send more of the buffer. Return False if the connection is closed."""
        with self._lock:
            return not self._closed and self._push()

    def _push(self) -> bool:
        try:
            while self._outgoing:
                with memoryview(self._outgoing) as view:
                    sent = self.socket.send(view[:_RECEIVE_BYTES])
                del self._outgoing[:sent]
                self._progress = time.monotonic()
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    @property
    def waits(self) -> bool:
        """Return whether the buffer contains unsent data."""
        return bool(self._outgoing)

    def stalled_s(self, now: float) -> float:
        with self._lock:
            return now - self._progress if self._outgoing else 0.0

    def hang_up(self) -> None:
        """Shut down the connection. Any thread may call it. The server's thread then sees the end of the connection."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._outgoing.clear()
            self.socket.close()


class SealedServer(ABC):
    """Server that listens until `close`.

    Args:
        host: address at which peers reach this process.
        port: port. 0 means any free port.
        key: key that peers must have.
        purpose: use of the key in this server.
        most: maximum size of a frame of an authenticated peer, in bytes.
    """

    title = "the sealed channel"
    """Name of the server in the log."""

    def __init__(self, host: str, port: int, key: str, purpose: bytes = CONTROL_CHANNEL, most: int = MAX_FRAME) -> None:
        self.token = key
        self.failure: Exception | None = None
        """Exception that ended the thread before `close`."""
        self._purpose = purpose
        self._most = most
        self._listener = socket.create_server((host, port), backlog=MAX_UNAUTHENTICATED)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_up, self._woken = socket.socketpair()
        self._wake_up.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._unauthenticated: dict[Peer, None] = {}
        """Unauthenticated peers, in the order of their arrival."""
        self._stuck: set[Peer] = set()
        """Peers that have not yet read all data."""
        self._refusals = Throttle()
        self._accept_failures = Throttle()
        self._max_unauthenticated = max_unauthenticated(MAX_UNAUTHENTICATED)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock-sealed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- methods of the subclass, which the server's thread calls -------------------------------------------------

    @abstractmethod
    def admit(self, peer: Peer, frame: bytes) -> str | None:
        """Handle the first frame of a peer that has the key. Return None and set `peer.name` to admit it, or return the reason of the
        refusal.
        """

    def on_admitted(self, peer: Peer) -> None:  # noqa: B027 - most servers have nothing to do here
        """Handle the admission of a peer. The peer has been notified, so messages can now be sent to it."""

    @abstractmethod
    def on_frame(self, peer: Peer, frame: bytes) -> None:
        """Handle a frame. An exception closes the connection."""

    @abstractmethod
    def on_disconnected(self, peer: Peer) -> None:
        """Handle the end of an admitted peer's connection."""

    # ------------------------------------------------------------------------------------------------------------

    def post(self, peer: Peer, body: bytes) -> bool:
        """Send without waiting for the peer to read. Return False if the connection is closed."""
        if self.failure is not None or not peer.post(body):
            return False
        if peer.waits:
            with self._lock:
                self._stuck.add(peer)
            self._wake()
        return True

    def _wake(self) -> None:
        try:
            self._wake_up.send(b"\0")
        except OSError:
            return  # the thread was already woken, or has ended

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:
            self.failure = error
            logger.exception("%s has ended", self.title)
        finally:
            for key in list(self._selector.get_map().values()):
                if isinstance(key.data, Peer):
                    key.data.close()
            self._listener.close()
            self._selector.close()
            self._woken.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(_TURN_S):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            elif key.data.socket.fileno() >= 0:
                self._guarded(key.data, partial(self._serve_peer, key.data, events))
        now = time.monotonic()
        for peer in list(self._unauthenticated):
            if now - peer.since < GREETING_S:
                break
            self._guarded(peer, partial(self._refuse, peer, "sent no data for too long"))
        with self._lock:
            stuck = list(self._stuck)
        for peer in stuck:
            self._guarded(peer, partial(self._check_stuck, peer, now))

    def _check_stuck(self, peer: Peer, now: float) -> None:
        if peer.stalled_s(now) > STALLED_S:
            logger.warning("%s does not read its data. Its connection is closed", peer.name)
            self._drop(peer)
        elif peer.waits and peer.socket.fileno() >= 0:
            self._selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # probably too many open files, so close one unauthenticated connection
            if self._accept_failures.due():
                logger.warning("%s cannot accept a connection: %s", self.title, error)
            if self._unauthenticated:
                self._refuse(next(iter(self._unauthenticated)), "too many connections are open, and others wait")
            else:
                self._closing.wait(_TURN_S)
            return
        peer = Peer(connection, f"{address[0]}:{address[1]}")
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.send(peer.server_random)
        except OSError:
            connection.close()
            return
        if len(self._unauthenticated) >= self._max_unauthenticated:
            self._refuse(next(iter(self._unauthenticated)), "too many connections are open, and others wait")
        self._unauthenticated[peer] = None
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _serve_peer(self, peer: Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if events & selectors.EVENT_READ and peer.socket.fileno() >= 0:
            self._receive(peer)

    def _guarded(self, peer: Peer, act: Callable[[], None]) -> None:
        """Run an action on a connection. An exception must not end the thread, because the thread serves all connections."""
        try:
            act()
        except NotAuthentic as error:
            self._refuse(peer, str(error))
        except Exception:
            logger.exception(
                "an unexpected error ends the connection of %s to %s", peer.name or peer.address, self.title
            )
            self._drop(peer)

    def _flush(self, peer: Peer) -> None:
        with self._lock:
            self._stuck.discard(peer)  # discard first, so that a concurrent `post` can add the peer again
        if not peer.flush():
            self._drop(peer)
        elif peer.waits:
            with self._lock:
                self._stuck.add(peer)
        else:
            self._selector.modify(peer.socket, selectors.EVENT_READ, peer)

    def _receive(self, peer: Peer) -> None:
        try:
            received = peer.socket.recv(_RECEIVE_BYTES if peer.name else _GREETING_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop(peer)
            return
        if peer.opener is None:
            received = self._begin(peer, received)
        opener = peer.opener
        if opener is None:
            return
        opener.feed(received)
        while (frame := opener.take()) is not None:
            if peer.name is not None:
                self.on_frame(peer, frame)
            elif not self._greet(peer, frame):
                return

    def _begin(self, peer: Peer, received: bytes) -> bytes:
        """Derive the keys when the client's random bytes have arrived. Return the bytes that follow them."""
        peer.unread += received
        if len(peer.unread) < HELLO_BYTES:
            return b""
        to_server, to_client = derive_keys(self.token, peer.server_random, peer.unread[:HELLO_BYTES], self._purpose)
        peer.opener, peer.sealer = Opener(to_server, _GREETING_BYTES), Sealer(to_client)
        rest, peer.unread = peer.unread[HELLO_BYTES:], b""
        return rest

    def _greet(self, peer: Peer, frame: bytes) -> bool:
        """Admit a peer that has the key."""
        reason = self.admit(peer, frame)
        if reason is not None:
            logger.warning("%s refuses %s: it %s", self.title, peer.name or peer.address, reason)
            peer.name = None
            self._drop(peer)
            return False
        assert peer.opener is not None
        peer.opener.limit = self._most
        del self._unauthenticated[peer]
        if not peer.post(b""):
            return False
        self.on_admitted(peer)
        return True

    def _refuse(self, peer: Peer, reason: str) -> None:
        """Close an unauthenticated connection. Log a refusal at most once a minute, so that clients cannot fill the log."""
        is_due = self._refusals.due() > 0
        if peer.name is not None or is_due:
            logger.warning(
                "%s refuses %s: %s (%d refused so far)",
                self.title,
                peer.name or peer.address,
                reason,
                self._refusals.count,
            )
        self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self._unauthenticated.pop(peer, None)
        if peer.socket.fileno() >= 0:
            self._selector.unregister(peer.socket)
        peer.close()
        if peer.name is None:
            return
        with self._lock:
            self._stuck.discard(peer)
        try:
            self.on_disconnected(peer)
        except Exception:
            logger.exception("%s failed to process the end of the connection of %s", self.title, peer.name)

    def close(self) -> None:
        self._closing.set()
        self._wake()
        self._thread.join(2)
        self._wake_up.close()
