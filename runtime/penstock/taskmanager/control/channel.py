"""The control channel of the pipelined runner: one TCP connection per task to the JobManager.

Records flow through Spark's shuffle for as long as the job runs. Spark gives a task its input only once, so commands
and acks travel over this channel. `sealed_channel` encrypts both directions with a key from the job's payload. The
first frame of a task identifies the task, and the JobManager answers with an empty frame.
"""

from __future__ import annotations

import secrets
import select
import socket
import threading
import time

import msgspec

from penstock.taskmanager.control.sealed_channel import CONTROL_CHANNEL, HELLO_BYTES, Opener, Sealer, derive_keys

CONNECT_S = 30.0
"""Timeout for the connection and the first frames of both sides, in seconds."""


class Hello(msgspec.Struct, frozen=True):
    """The first frame of a task, which identifies the task."""

    attempt: int
    slot: int
    level: int


class ControlConnection:
    """The task's end of the channel. One thread uses the connection, and the watchdog thread also calls `send`. Frames
    are small, and `send` writes whole frames.

    Args:
        address: host:port of the JobManager's control server.
        token: the key that both sides have.
        hello: first frame, which identifies this side. A task sends `Hello`.
        purpose: purpose that the keys are derived for.
        connect_s: timeout for the connection and the first frames of both sides, in seconds.

    Raises:
        ConnectionError: the server does not answer, is not the JobManager, or refuses this task.
    """

    def __init__(
        self,
        address: str,
        token: str,
        hello: msgspec.Struct,
        *,
        purpose: bytes = CONTROL_CHANNEL,
        connect_s: float = CONNECT_S,
    ) -> None:
        host, _, port = address.rpartition(":")
        deadline = time.monotonic() + connect_s
        self._socket = socket.create_connection((host, int(port)), timeout=connect_s)
        self._closed = False
        self._sending = threading.Lock()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server_random = self._receive_exactly(HELLO_BYTES)
            client_random = secrets.token_bytes(HELLO_BYTES)
            to_server, to_client = derive_keys(token, server_random, client_random, purpose)
            self._sealer = Sealer(to_server)
            self._opener = Opener(to_client)
            self._socket.sendall(client_random + self._sealer.seal(msgspec.msgpack.encode(hello)))
            while self.poll(max(0.0, deadline - time.monotonic())) is None:
                if time.monotonic() > deadline:
                    raise ConnectionError(f"{address} did not answer like the control channel of a JobManager")
        except BaseException:
            self.close()
            raise

    def _receive_exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            more = self._socket.recv(count - len(received))
            if not more:
                raise ConnectionError("the JobManager closed the control connection")
            received += more
        return received

    def send(self, body: bytes) -> None:
        with self._sending:
            self._socket.sendall(self._sealer.seal(body))

    def poll(self, timeout_s: float | None = 0.0, also: tuple[int, ...] = ()) -> bytes | None:
        """Return the next frame, or None if no frame comes within the timeout.

        Args:
            timeout_s: None waits until any bytes arrive.
            also: file descriptors. The wait ends when one of them becomes readable.

        Raises:
            ConnectionError: the JobManager is gone, or the frame is not from the JobManager.
        """
        frame = self._opener.take()
        if frame is not None:
            return frame
        descriptor = self._socket.fileno()
        readable, _, _ = select.select((descriptor, *also), (), (), timeout_s)
        if descriptor in readable:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the JobManager closed the control connection")
            self._opener.feed(received)
        return self._opener.take()

    def fileno(self) -> int:
        """Return the file descriptor for `select`. It is readable when bytes have arrived."""
        return self._socket.fileno()

    def enable_keepalive(self) -> None:
        """Let `poll` raise about 30 s after the peer's machine or the network is lost, even if both sides are silent."""
        for name, value in (
            ("TCP_KEEPIDLE", 10),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 25_000),
        ):
            option = getattr(socket, name, None)
            if option is not None:
                self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._socket.close()
