"""The control channel of the pipelined runner: one TCP connection per task to the JobManager.

Records flow through Spark's shuffle for as long as the job runs; commands and acks cannot, because a task sees its Spark
input only once. Both directions are sealed (`sealed_channel`) with a key that the tasks have from the job's payload. The
first frame of a task says which one it is; the JobManager answers with an empty one.
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
"""For the connection and the first frames of both sides."""


class Hello(msgspec.Struct, frozen=True):
    """First frame of a task: which one it is."""

    attempt: int
    slot: int
    level: int


class ControlConnection:
    """The task's end. Used by one thread; `send` also by the one that watches it. Frames are small and written whole.

    Args:
        address: host:port of the JobManager's control server.
        token: the key that both have.
        hello: who this is: `Hello` of a task.
        purpose: what the key is used for.
        connect_s: for the connection and the first frames of both sides.

    Raises:
        ConnectionError: nobody is there, it is not the JobManager, or it does not want this task.
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
                    raise ConnectionError(f"{address} does not answer as a JobManager's control channel would")
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
        """The next frame if there is one within the time (None: as soon as anything comes); None else.

        Args:
            also: files; when one of them becomes readable, there is no more waiting.

        Raises:
            ConnectionError: the JobManager is gone, or somebody else sends in its stead.
        """
        frame = self._opener.take()
        if frame is not None:
            return frame
        own = self._socket.fileno()
        readable, _, _ = select.select((own, *also), (), (), timeout_s)
        if own in readable:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the JobManager closed the control connection")
            self._opener.feed(received)
        return self._opener.take()

    def fileno(self) -> int:
        """Readable when something has come: for `select`."""
        return self._socket.fileno()

    def notice_a_lost_peer(self) -> None:
        """Half a minute after its machine, or the way to it, is gone `poll` raises, though nothing is sent or expected."""
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
