"""Bounded files of lines, which can be read while they are written.

A position counts the bytes that were ever written, so that who reads on from where it was last misses nothing that is still
kept, and learns what is not.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass

from penstock.common.logs.redaction import Redaction

FILE_BYTES = 10 * 2**20
KEPT_FILES = 2


@dataclass(frozen=True)
class LogPart:
    """Whole lines. `start`: position of the first byte; `end`: of the first one behind; `size`: of all that there is by now."""

    start: int
    end: int
    size: int
    data: bytes


class LogFile:
    """Takes whole lines. When it is full it begins anew and keeps what it had as `PATH.1`, what that had as `PATH.2`, … Thread-safe.

    Args:
        most: bytes of a file.
        files: how many are kept, with the one that is written.
    """

    def __init__(
        self, path: str, most: int = FILE_BYTES, files: int = KEPT_FILES, redaction: Redaction | None = None
    ) -> None:
        self.path = path
        self.modified_at = 0
        """ms since the epoch; 0: nothing was written."""
        self._most = most
        self._redaction = redaction or Redaction()
        self._older: deque[int] = deque(maxlen=max(0, files - 1))
        """Bytes of `PATH.1`, `PATH.2`, …"""
        self._written = 0
        self._current = 0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def kept(self) -> int:
        """Bytes that can be read."""
        with self._lock:
            return self._current + sum(self._older)

    def write(self, lines: bytes) -> None:
        """A disk that takes nothing must not hold up who writes: the lines are lost."""
        lines = self._redaction.clean_bytes(lines)
        try:
            with self._lock:
                if self._current > 0 and self._current + len(lines) > self._most:
                    self._begin_anew()
                with open(self.path, "ab") as file:
                    file.write(lines)
                self._current += len(lines)
                self._written += len(lines)
                self.modified_at = int(time.time() * 1000)
        except OSError:
            return

    def _begin_anew(self) -> None:
        if not self._older.maxlen:
            os.truncate(self.path, 0)
        else:
            for number in range(min(len(self._older), self._older.maxlen - 1), 0, -1):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            os.replace(self.path, f"{self.path}.1")
            self._older.appendleft(self._current)
        self._current = 0

    def read(self, start: int, most: int) -> LogPart:
        """Lines from a position on, or the first that is kept behind it; a negative one counts from the end.

        Returns:
            At most about `most` bytes that end with a line, unless a single line is longer than that.
        """
        with self._lock:
            size, oldest = self._written, self._written - self._current - sum(self._older)
            from_end = start < 0
            start = min(max(size + start if from_end else start, oldest), size)
            data = self._bytes(start - oldest, min(most, size - start))
        if from_end and start > oldest:  # in the middle of a line, most likely
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        if start + len(data) < size:
            data = data[: data.rfind(b"\n") + 1] or data
        return LogPart(start, start + len(data), size, data)

    def _bytes(self, offset: int, count: int) -> bytes:
        """From all that is kept, seen as one file."""
        found = b""
        files = [(f"{self.path}.{number + 1}", size) for number, size in enumerate(self._older)][::-1]
        for path, size in [*files, (self.path, self._current)]:
            if offset < size and count > len(found):
                try:
                    with open(path, "rb") as file:
                        file.seek(offset)
                        found += file.read(min(count - len(found), size - offset))
                except OSError:
                    return found
            offset = max(0, offset - size)
        return found


class LogFileHandler(logging.Handler):
    """Writes records into a `LogFile`."""

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self.file = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.file.write(self.format(record).encode(errors="backslashreplace") + b"\n")
        except Exception:
            self.handleError(record)
