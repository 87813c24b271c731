"""The JobManager's end of the control channel (see `taskmanager.control`): one thread, one connection per task."""

from __future__ import annotations

import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from penstock.taskmanager.control import Hello

_LENGTH = struct.Struct(">I")
_MAX_FRAME = 256 * 1024 * 1024


@dataclass
class _Peer:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    hello: Hello | None = None


class ControlServer:
    """Listens for the tasks of an attempt.

    Args:
        host: address the tasks reach this process at.
        on_frame: called from the server's thread with (task, frame).
        on_gone: called when a task's connection has closed.
    """

    def __init__(self, host: str, on_frame: Callable[[Hello, bytes], None], on_gone: Callable[[Hello], None]) -> None:
        self.token = secrets.token_hex(16)
        self._on_frame = on_frame
        self._on_gone = on_gone
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[tuple[int, int, int], _Peer] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock-control", daemon=True)
        self._thread.start()

    def connected(self, attempt: int) -> int:
        """Tasks of the attempt that are there."""
        with self._lock:
            return sum(1 for key in self._peers if key[0] == attempt)

    def send(self, attempt: int, slot: int, level: int, body: bytes) -> bool:
        """False: that task is not (any more) there."""
        with self._lock:
            peer = self._peers.get((attempt, slot, level))
        if peer is None:
            return False
        try:
            peer.socket.settimeout(10)
            peer.socket.sendall(_LENGTH.pack(len(body)) + body)
        except OSError:
            return False
        return True

    def _serve(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(0.2):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.data)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, _Peer(connection))

    def _receive(self, peer: _Peer) -> None:
        try:
            received = peer.socket.recv(1 << 20)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            received = b""
        if not received:
            self._drop(peer)
            return
        peer.received += received
        while (frame := self._take(peer)) is not None:
            if peer.hello is None:
                if not self._greet(peer, frame):
                    return
            else:
                self._on_frame(peer.hello, frame)

    def _take(self, peer: _Peer) -> bytes | None:
        if len(peer.received) < 4:
            return None
        (length,) = _LENGTH.unpack_from(peer.received)
        if length > _MAX_FRAME:
            self._drop(peer)
            return None
        if len(peer.received) < 4 + length:
            return None
        frame = bytes(peer.received[4 : 4 + length])
        del peer.received[: 4 + length]
        return frame

    def _greet(self, peer: _Peer, frame: bytes) -> bool:
        try:
            hello = msgspec.msgpack.decode(frame, type=Hello)
        except msgspec.MsgspecError:
            hello = None
        if hello is None or not secrets.compare_digest(hello.token, self.token):
            self._drop(peer)
            return False
        peer.hello = hello
        with self._lock:
            self._peers[hello.attempt, hello.slot, hello.level] = peer
        return True

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.socket)
        peer.socket.close()
        hello = peer.hello
        if hello is None:
            return
        with self._lock:
            if self._peers.get((hello.attempt, hello.slot, hello.level)) is peer:
                del self._peers[hello.attempt, hello.slot, hello.level]
        self._on_gone(hello)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(2)
