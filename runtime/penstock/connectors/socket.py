"""`SocketTextSource`: lines that a server sends over a socket. For first steps and demonstrations.

A socket cannot be read again: after a failure what came since the last checkpoint is lost, so each line counts at most once.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

from penstock.functions.record_functions import SourceFunction

_PAUSE_S = 0.5
_PIECE = 8192


class SocketTextSource(SourceFunction):
    """A source function that connects to host and port and emits what is between delimiters.

    Args:
        max_retry: how often it connects again, half a second after it could not or after the server has closed; -1: for ever.
    """

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        self.host = host
        self.port = port
        self.delimiter = delimiter
        self.max_retry = max_retry
        self._cancelled: threading.Event | None = None

    def run(self, ctx: Any) -> None:
        cancelled = self._cancelled = self._cancelled or threading.Event()
        retries = 0
        while not cancelled.is_set():
            try:
                with socket.create_connection((self.host, self.port), timeout=_PAUSE_S) as connection:
                    self._read(connection, ctx, cancelled)
            except OSError:
                if retries == self.max_retry:
                    raise
            if retries == self.max_retry:
                return
            retries += 1
            cancelled.wait(_PAUSE_S)

    def _read(self, connection: socket.socket, ctx: Any, cancelled: threading.Event) -> None:
        rest, delimiter = b"", self.delimiter.encode()
        while not cancelled.is_set():
            try:
                piece = connection.recv(_PIECE)
            except TimeoutError:
                continue
            if not piece:
                break
            *lines, rest = (rest + piece).split(delimiter)
            for line in lines:
                ctx.collect(_text(line, delimiter))
        if rest:
            ctx.collect(_text(rest, delimiter))

    def cancel(self) -> None:
        if self._cancelled is not None:
            self._cancelled.set()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cancelled": None}


def _text(line: bytes, delimiter: bytes) -> str:
    """A line; what ends with a line feed may have a carriage return before it."""
    return (line.removesuffix(b"\r") if delimiter == b"\n" else line).decode()
