"""`SocketTextSource`: lines that a server sends over a socket. Use it for first steps and demonstrations.

A socket cannot be read again. A failure loses the lines since the last checkpoint, so each line counts at most once.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.functions.record_functions import SourceFunction

_PAUSE_S = 0.5
_CONNECT_S = 10.0
_PIECE = 65_536
_LONGEST = 64 * 1024 * 1024
_SHOWN = 200


class SocketTextSource(SourceFunction):
    """A source function that connects to a host and port and emits the texts between delimiters.

    Args:
        max_retry: how often the source reconnects if a connection failed or the server has closed the connection. -1 means no limit.
            The source waits half a second before each retry.

    Raises:
        SourceError: in the job: the server no longer answers, or sends 64 MiB without a delimiter.
        RecordFormatError: in the job: a line is not UTF-8.
    """

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not delimiter:
            raise InvalidJob("the delimiter of a socket source is empty", remedy="pass the text that ends a line")
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
                with socket.create_connection((self.host, self.port), timeout=_CONNECT_S) as connection:
                    connection.settimeout(_PAUSE_S)
                    # Keepalives detect a server that is gone but has not closed the connection.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    self._read(connection, ctx, cancelled)
            except OSError as error:
                if retries == self.max_retry:
                    raise SourceError(
                        f"{self._shown} cannot be read: {type(error).__name__}: {error}",
                        remedy="check host and port, and that the server runs. To retry the connection, set max_retry=",
                    ) from error
            if retries == self.max_retry:
                return
            retries += 1
            cancelled.wait(_PAUSE_S)

    def _read(self, connection: socket.socket, ctx: Any, cancelled: threading.Event) -> None:
        rest, delimiter = bytearray(), self.delimiter.encode()
        while not cancelled.is_set():
            try:
                piece = connection.recv(_PIECE)
            except TimeoutError:
                continue
            if not piece:
                break
            looked = max(0, len(rest) - len(delimiter) + 1)
            rest += piece
            if rest.find(delimiter, looked) >= 0:
                *lines, rest = rest.split(delimiter)
                for line in lines:
                    ctx.collect(self._text(line, delimiter))
            elif len(rest) > _LONGEST:
                raise SourceError(
                    f"{self._shown} has sent {len(rest):,} bytes without a delimiter {self.delimiter!r}: {bytes(rest[:_SHOWN])!r}",
                    remedy="set delimiter= to the text that the server sends after each record",
                )
        if rest:
            ctx.collect(self._text(rest, delimiter))

    @property
    def _shown(self) -> str:
        return f"the socket {self.host}:{self.port}"

    def _text(self, line: bytearray, delimiter: bytes) -> str:
        """Return a line as text. If the delimiter is a line feed, a carriage return before it is removed."""
        try:
            return (line.removesuffix(b"\r") if delimiter == b"\n" else line).decode()
        except UnicodeDecodeError as error:
            raise RecordFormatError(
                f"a line of {self._shown} is not UTF-8: {error.reason} at byte {error.start}: {bytes(line[:_SHOWN])!r}",
                remedy="configure the server to send UTF-8",
            ) from None

    def cancel(self) -> None:
        if self._cancelled is not None:
            self._cancelled.set()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cancelled": None}
