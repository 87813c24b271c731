"""The control channel of the pipelined runner: one TCP connection per task to the JobManager.

Records flow through Spark's shuffle for as long as the job runs; commands and acks cannot, because a task sees its Spark
input only once. Frames are a 4-byte length and a msgpack body. The first frame of a task says who it is and proves that it
knows the attempt's token.
"""

from __future__ import annotations

import select
import socket
import struct

import msgspec

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct):
    """First frame of a task."""

    token: str
    attempt: int
    slot: int
    level: int


class ControlConnection:
    """The task's end. Used by one thread; frames are small and written whole."""

    def __init__(self, address: str, hello: Hello) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._closed = False
        self.send(msgspec.msgpack.encode(hello))

    def send(self, body: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def poll(self, timeout_s: float = 0.0) -> bytes | None:
        """The next frame if there is one within the time; None else.

        Raises:
            ConnectionError: the JobManager is gone.
        """
        frame = self._take()
        if frame is not None:
            return frame
        readable, _, _ = select.select((self._socket,), (), (), timeout_s)
        if readable:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the JobManager closed the control connection")
            self._received += received
        return self._take()

    def _take(self) -> bytes | None:
        if len(self._received) < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if len(self._received) < 4 + length:
            return None
        frame = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return frame

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._socket.close()
