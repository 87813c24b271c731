"""What executors and their Python workers write: a job's own prints and logs, and the JVM's warnings.

A deployed TaskManager copies it to its own output, line by line with the executor's number in front, because nobody who has
only `kubectl logs` would look anywhere else. On an embedded cluster it goes to a file that stays small.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import IO

_CHUNK = 1 << 16
_LONGEST = 64 * 1024
"""A line without an end is copied in pieces of that many bytes."""
FILE_BYTES = 8 * 1024 * 1024


def copy_output(source: IO[bytes], prefix: str, write: Callable[[bytes], object]) -> threading.Thread:
    """Copy whole lines until the last process that has the other end has gone; from a thread of its own."""
    thread = threading.Thread(target=_copy, args=(source, prefix.encode(), write), name="executor-output", daemon=True)
    thread.start()
    return thread


def _copy(source: IO[bytes], prefix: bytes, write: Callable[[bytes], object]) -> None:
    rest = b""
    with source:
        while chunk := os.read(source.fileno(), _CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST:
                whole, rest = [*whole, rest], b""
            if whole:
                write(b"".join(prefix + line + b"\n" for line in whole))
    if rest:
        write(prefix + rest + b"\n")


def to_stdout(lines: bytes) -> None:
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


class BoundedFile:
    """Takes lines; when it is full it begins anew, and keeps what it had before as `PATH.1`. Thread-safe."""

    def __init__(self, path: str, most: int = FILE_BYTES) -> None:
        self._path = path
        self._most = most
        self._lock = threading.Lock()

    def write(self, lines: bytes) -> None:
        """A disk that takes nothing must not hold up who writes: the lines are lost."""
        try:
            with self._lock:
                if os.path.exists(self._path) and os.path.getsize(self._path) > self._most:
                    os.replace(self._path, f"{self._path}.1")
                with open(self._path, "ab") as file:
                    file.write(lines)
        except OSError:
            return
