"""Messages between `penstock dev` and the process that runs the program: lines of JSON on a socket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import msgspec

from penstock.jobmanager.process.dev.kept_state import KeptState
from penstock.jobmanager.process.dev.watched_files import Signature


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Request to end the program. `with_savepoints`: stop each job with a savepoint. Otherwise cancel it."""

    with_savepoints: bool


class Restored(msgspec.Struct, frozen=True, tag="restored"):
    """The state that a job starts with."""

    job: str
    state: KeptState


class Running(msgspec.Struct, frozen=True, tag="running"):
    """A job that was accepted."""

    job: str
    dashboard: str
    port: int
    is_new: bool
    """Whether the job starts without state."""


class Files(msgspec.Struct, frozen=True, tag="files"):
    """Source files of the program that are to be watched, with their signatures."""

    files: dict[str, Signature]


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """The reason why a requested stop takes long."""

    reason: str


class JobEnd(msgspec.Struct, frozen=True):
    """The end of a job. `snapshot`: the snapshot from which the next run may start, or an empty string.

    `refused`: the name of the operator whose task could not read the state that it restored, or an empty string.
    """

    job: str
    job_id: str
    status: str
    snapshot: str = ""
    note: str = ""
    refused: str = ""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The end of the program. After a `Stop`, it is the end of the program's jobs. `failed`: whether the program raised
    an exception."""

    jobs: list[JobEnd]
    failed: bool = False


Message = Restored | Running | Files | Waiting | Ended


class Line:
    """One end of the socket.

    Args:
        received: type of the messages that arrive.
    """

    def __init__(self, end: socket.socket, received: Any) -> None:
        self.socket = end
        self._decoder = msgspec.json.Decoder(received)
        self._rest = b""
        self._sending = threading.Lock()
        """Lock for `send`: the threads of a run send at the same time, and a long message is sent in parts."""

    def send(self, message: Message | Stop) -> None:
        """Send a message. Do nothing if the other process has ended."""
        with self._sending, suppress(OSError):
            self.socket.sendall(msgspec.json.encode(message) + b"\n")

    def take(self) -> list[Any] | None:
        """Wait for data, and return the complete messages. None means that the other process has ended."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._decoder.decode(line) for line in lines]
