"""The JobManager's end of the control channel (see `taskmanager.control.channel`): one connection per task.

What goes wrong with a connection ends the attempt of the task that it belonged to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

from penstock.jobmanager.cluster.sealed_server import Peer, SealedServer
from penstock.taskmanager.control.channel import Hello


class ControlServer(SealedServer):
    """Listens for the tasks of an attempt.

    Args:
        host: address the tasks reach this process at.
        on_frame: called from the server's thread with (task, frame). What it raises ends that task's connection.
        on_gone: called when a task's connection has closed.
    """

    what = "the control channel"

    def __init__(self, host: str, on_frame: Callable[[Hello, bytes], None], on_gone: Callable[[Hello], None]) -> None:
        super().__init__(host, 0, secrets.token_hex(32))
        self._tell_frame = on_frame
        self._tell_gone = on_gone
        self._expected = (-1, 0, 0)
        self._peers: dict[tuple[int, int, int], Peer] = {}
        self.start()

    def expect(self, attempt: int, slots: int, levels: int) -> None:
        """From now on these tasks are let in, and no others."""
        with self._lock:
            self._expected = (attempt, slots, levels)

    def connected(self, attempt: int) -> int:
        """Tasks of the attempt that are there."""
        with self._lock:
            return sum(1 for key in self._peers if key[0] == attempt)

    def send(self, attempt: int, slot: int, level: int, body: bytes) -> bool:
        """Does not wait for the task to read. False: that task is not (any more) there."""
        with self._lock:
            peer = self._peers.get((attempt, slot, level))
        return peer is not None and self.post(peer, body)

    def admit(self, peer: Peer, frame: bytes) -> str | None:
        """Let it in if it is a task of this attempt, and the only one that says so."""
        hello = peer.name = msgspec.msgpack.decode(frame, type=Hello)
        with self._lock:
            attempt, slots, levels = self._expected
            if hello.attempt != attempt or not (0 <= hello.slot < slots and 0 <= hello.level < levels):
                return f"is not one of attempt {attempt}, the one that runs"
            if _key(hello) in self._peers:
                return "is there already"
            self._peers[_key(hello)] = peer
        return None

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        assert isinstance(peer.name, Hello)
        self._tell_frame(peer.name, frame)

    def on_gone(self, peer: Peer) -> None:
        hello = peer.name
        assert isinstance(hello, Hello)
        with self._lock:
            if self._peers.get(_key(hello)) is not peer:
                return
            del self._peers[_key(hello)]
        self._tell_gone(hello)


def _key(hello: Hello) -> tuple[int, int, int]:
    return hello.attempt, hello.slot, hello.level
