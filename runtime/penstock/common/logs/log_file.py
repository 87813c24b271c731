"""Bounded log files that can be read while they are written.

A position counts all bytes that were ever written. A reader that continues at its last position gets every line that is
still kept, and learns how many bytes it has missed.
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
MAX_FILES = 2


@dataclass(frozen=True)
class LogPart:
    """Whole lines. `start`: position of the first byte of the lines; `end`: position after their last byte; `size`:
    position of the file's end.
    """

    start: int
    end: int
    size: int
    data: bytes


class LogFile:
    """A log file that takes whole lines. Thread-safe.

    A full file is renamed to `PATH.1`, the former `PATH.1` to `PATH.2`, and so on. Then a new file starts.

    Args:
        max_bytes: maximum bytes of a file.
        files: number of kept files, including the current file.
    """

    def __init__(
        self, path: str, max_bytes: int = FILE_BYTES, files: int = MAX_FILES, redaction: Redaction | None = None
    ) -> None:
        self.path = path
        self.modified_at = 0
        """Time of the last write in ms since the epoch; 0 if nothing was written."""
        self._max_bytes = max_bytes
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
        """Number of bytes that can be read."""
        with self._lock:
            return self._current + sum(self._older)

    def write(self, lines: bytes) -> None:
        """Write lines. Drop them if the disk fails, so that the caller is not blocked."""
        lines = self._redaction.clean_bytes(lines)
        try:
            with self._lock:
                if self._current > 0 and self._current + len(lines) > self._max_bytes:
                    self._rotate()
                with open(self.path, "ab") as file:
                    file.write(lines)
                self._current += len(lines)
                self._written += len(lines)
                self.modified_at = int(time.time() * 1000)
        except OSError:
            return

    def _rotate(self) -> None:
        if not self._older.maxlen:
            os.truncate(self.path, 0)
        else:
            for number in range(min(len(self._older), self._older.maxlen - 1), 0, -1):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            os.replace(self.path, f"{self.path}.1")
            self._older.appendleft(self._current)
        self._current = 0

    def read(self, start: int, max_bytes: int) -> LogPart:
        """Return lines from a position on. If this position is no longer kept, start at the first kept position. A
        negative position counts from the end.

        Returns:
            At most `max_bytes` bytes that end with a line. If a single line is longer, the first `max_bytes` bytes of
            it.
        """
        with self._lock:
            size, oldest = self._written, self._written - self._current - sum(self._older)
            from_end = start < 0
            start = min(max(size + start if from_end else start, oldest), size)
            data = self._bytes(start - oldest, min(max_bytes, size - start))
        if from_end and start > oldest:  # probably in the middle of a line
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        if start + len(data) < size:
            data = data[: data.rfind(b"\n") + 1] or data
        return LogPart(start, start + len(data), size, data)

    def _bytes(self, offset: int, count: int) -> bytes:
        """Return bytes of all kept files, seen as one file."""
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
    """A logging handler that writes records to a `LogFile`."""

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self.file = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.file.write(self.format(record).encode(errors="backslashreplace") + b"\n")
        except Exception:
            self.handleError(record)
