"""The JobManager's end of the control channel (see `taskmanager.control.channel`): one connection per task.

An error of a connection ends the attempt of its task.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from penstock.jobmanager.cluster.sealed_server import Peer, SealedServer
from penstock.taskmanager.control.channel import Hello


class ControlServer(SealedServer):
    """Server for the tasks of an attempt.

    Args:
        host: address at which the tasks reach this process.
        on_frame: function that the server's thread calls with (task, frame). An exception closes the task's connection.
        on_disconnected: function that is called when a task's connection has closed.
    """

    title = "the control channel"

    def __init__(
        self, host: str, on_frame: Callable[[Hello, bytes], None], on_disconnected: Callable[[Hello], None]
    ) -> None:
        super().__init__(host, 0, secrets.token_hex(32))
        self._frame_callback = on_frame
        self._disconnect_callback = on_disconnected
        self._expected = (-1, 0, 0)
        self._peers: dict[tuple[int, int, int], Peer] = {}
        self.start()

    def expect(self, attempt: int, slots: int, levels: int) -> None:
        """Admit only the tasks of this attempt from now on."""
        with self._lock:
            self._expected = (attempt, slots, levels)

    def connected(self, attempt: int) -> int:
        """Return the number of connected tasks of the attempt."""
        with self._lock:
            return sum(1 for key in self._peers if key[0] == attempt)

    def send(self, attempt: int, slot: int, level: int, body: bytes) -> bool:
        """Send a message without waiting for the task to read it. Return False if the task is not connected."""
        with self._lock:
            peer = self._peers.get((attempt, slot, level))
        return peer is not None and self.post(peer, body)

    def admit(self, peer: Peer, frame: bytes) -> str | None:
        """Admit a peer if it is a task of this attempt that is not yet connected."""
        hello = peer.name = msgspec.msgpack.decode(frame, type=Hello)
        with self._lock:
            attempt, slots, levels = self._expected
            if hello.attempt != attempt or not (0 <= hello.slot < slots and 0 <= hello.level < levels):
                return f"is not a task of the running attempt {attempt}"
            if _key(hello) in self._peers:
                return "is already connected"
            self._peers[_key(hello)] = peer
        return None

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        assert isinstance(peer.name, Hello)
        self._frame_callback(peer.name, frame)

    def on_disconnected(self, peer: Peer) -> None:
        hello = peer.name
        assert isinstance(hello, Hello)
        with self._lock:
            if self._peers.get(_key(hello)) is not peer:
                return
            del self._peers[_key(hello)]
        self._disconnect_callback(hello)


def _key(hello: Hello) -> tuple[int, int, int]:
    return hello.attempt, hello.slot, hello.level
