"""A server of sealed connections (see `taskmanager.control.sealed_channel`): one thread, one connection for each peer.

Anybody can connect, so whoever has not proved to have the key costs little and gets nothing: some hundred bytes, ten seconds,
one of a thousand places, of which the oldest is given to who comes next. A peer that does not read holds up nobody: what
it does not take at once waits here, and if it takes nothing for ten seconds it counts as gone.

The thread outlives what a connection does to it. Whatever goes wrong with a connection ends that connection, by name in
the log; should the thread itself end, `failure` says why.
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
"""Time to prove to have the key."""
STRANGERS = 1024
"""Connections that may be about to prove it at the same time: as many as 256 slots of 4 levels make."""
STALLED_S = 10.0
"""A peer that takes nothing of what is there for it for so long is gone."""
_GREETING_BYTES = 512
"""Of the frame that says hello."""
_RECEIVE_BYTES = 1 << 20
_TURN_S = 0.2
_TELL_EVERY_S = 60.0


class Peer:
    """One connection. `post` may be called by any thread, the rest by the server's."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.socket = connection
        self.address = address
        self.name: object = None
        """Who it is, once that is known."""
        self.since = time.monotonic()
        self.server_random = secrets.token_bytes(HELLO_BYTES)
        self.opener: Opener | None = None
        self.sealer: Sealer | None = None
        self.unread = b""
        """What came of the client's random bytes."""
        self._lock = threading.Lock()
        self._outgoing = bytearray()
        self._progress = 0.0
        """When some of `_outgoing` last left; meaningless without any."""
        self._closed = False

    def post(self, body: bytes) -> bool:
        """Send, or keep what cannot be sent at once; False: the connection is gone."""
        assert self.sealer is not None
        with self._lock:
            if self._closed:
                return False
            if not self._outgoing:
                self._progress = time.monotonic()
            self._outgoing += self.sealer.seal(body)
            return self._push()

    def flush(self) -> bool:
        """Send more of what waits; False: the connection is gone."""
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
        """There is something that could not be sent yet."""
        return bool(self._outgoing)

    def stalled_s(self, now: float) -> float:
        with self._lock:
            return now - self._progress if self._outgoing else 0.0

    def hang_up(self) -> None:
        """From any thread: the server's then finds that the connection has ended."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._outgoing.clear()
            self.socket.close()


class SealedServer(ABC):
    """Listens until `close`.

    Args:
        host: address that peers reach this process at.
        port: 0: any that is free.
        key: what peers must have.
        purpose: what the key is used for here.
        most: bytes of a frame of a peer that is known.
    """

    what = "the sealed channel"
    """Its name in the log."""

    def __init__(self, host: str, port: int, key: str, purpose: bytes = CONTROL_CHANNEL, most: int = MAX_FRAME) -> None:
        self.token = key
        self.failure: Exception | None = None
        """What ended the thread before `close` did."""
        self._purpose = purpose
        self._most = most
        self._listener = socket.create_server((host, port), backlog=STRANGERS)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_up, self._woken = socket.socketpair()
        self._wake_up.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._strangers: dict[Peer, None] = {}
        """Those that have not said who they are, in the order in which they came."""
        self._stuck: set[Peer] = set()
        """Those that have not taken all that is there for them."""
        self._refused = 0
        self._told = -_TELL_EVERY_S
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock-sealed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- what the owner of the server says, from its thread -----------------------------------------------------

    @abstractmethod
    def admit(self, peer: Peer, frame: bytes) -> str | None:
        """The first frame of a peer that has the key. None: it is known now, by `peer.name`; else why it is refused."""

    def on_admitted(self, peer: Peer) -> None:  # noqa: B027 - most have nothing to say
        """It has been told so, and may be sent something."""

    @abstractmethod
    def on_frame(self, peer: Peer, frame: bytes) -> None:
        """What it raises ends the connection."""

    @abstractmethod
    def on_gone(self, peer: Peer) -> None:
        """The connection of a peer that was admitted has ended."""

    # ------------------------------------------------------------------------------------------------------------

    def post(self, peer: Peer, body: bytes) -> bool:
        """Send; does not wait for the peer to read. False: the connection is gone."""
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
            return  # it has been woken already, or has ended

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:
            self.failure = error
            logger.exception("%s has ended", self.what)
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
                self._carefully(key.data, partial(self._serve_peer, key.data, events))
        now = time.monotonic()
        for peer in list(self._strangers):
            if now - peer.since < GREETING_S:
                break
            self._carefully(peer, partial(self._refuse, peer, "said nothing for too long"))
        with self._lock:
            stuck = list(self._stuck)
        for peer in stuck:
            self._carefully(peer, partial(self._look_after_stuck, peer, now))

    def _look_after_stuck(self, peer: Peer, now: float) -> None:
        if peer.stalled_s(now) > STALLED_S:
            logger.warning("%s reads nothing: it counts as gone", peer.name)
            self._drop(peer)
        elif peer.waits and peer.socket.fileno() >= 0:
            self._selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # too many files are open, most likely: a stranger less is one less
            logger.warning("%s cannot take a connection: %s", self.what, error)
            if self._strangers:
                self._refuse(next(iter(self._strangers)), "others wait")
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
        if len(self._strangers) >= STRANGERS:
            self._refuse(next(iter(self._strangers)), "others wait")
        self._strangers[peer] = None
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _serve_peer(self, peer: Peer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(peer)
        if events & selectors.EVENT_READ and peer.socket.fileno() >= 0:
            self._receive(peer)

    def _carefully(self, peer: Peer, act: Callable[[], None]) -> None:
        """Nothing that one connection brings may end the thread that serves all."""
        try:
            act()
        except NotAuthentic as error:
            self._refuse(peer, str(error))
        except Exception:
            logger.exception("the connection of %s to %s ends", peer.name or peer.address, self.what)
            self._drop(peer)

    def _flush(self, peer: Peer) -> None:
        with self._lock:
            self._stuck.discard(peer)  # first: who posts meanwhile puts it back
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
        """Make the keys as soon as the client's random bytes are there; returns what came behind them."""
        peer.unread += received
        if len(peer.unread) < HELLO_BYTES:
            return b""
        to_server, to_client = derive_keys(self.token, peer.server_random, peer.unread[:HELLO_BYTES], self._purpose)
        peer.opener, peer.sealer = Opener(to_server, _GREETING_BYTES), Sealer(to_client)
        rest, peer.unread = peer.unread[HELLO_BYTES:], b""
        return rest

    def _greet(self, peer: Peer, frame: bytes) -> bool:
        """The peer has the key."""
        why = self.admit(peer, frame)
        if why is not None:
            logger.warning("%s refuses %s: it %s", self.what, peer.name or peer.address, why)
            peer.name = None
            self._drop(peer)
            return False
        assert peer.opener is not None
        peer.opener.limit = self._most
        del self._strangers[peer]
        if not peer.post(b""):
            return False
        self.on_admitted(peer)
        return True

    def _refuse(self, peer: Peer, why: str) -> None:
        """Drop a stranger. Said at most once a minute: strangers do not fill the log either."""
        self._refused += 1
        now = time.monotonic()
        if peer.name is not None or now - self._told >= _TELL_EVERY_S:
            self._told = now
            logger.warning(
                "%s refuses %s: %s (%d refused so far)",
                self.what,
                peer.name or peer.address,
                why,
                self._refused,
            )
        self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self._strangers.pop(peer, None)
        if peer.socket.fileno() >= 0:
            self._selector.unregister(peer.socket)
        peer.close()
        if peer.name is None:
            return
        with self._lock:
            self._stuck.discard(peer)
        try:
            self.on_gone(peer)
        except Exception:
            logger.exception("%s has not come to terms with the end of %s", self.what, peer.name)

    def close(self) -> None:
        self._closing.set()
        self._wake()
        self._thread.join(2)
        self._wake_up.close()
