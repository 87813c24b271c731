"""Rows that a task receives from Spark and sends to Spark, and a tick if no row arrives in time.

A task of a pipelined attempt sleeps until there is work: a row, a due timer, or a buffer that has waited long enough.
Spark gives the task a stream, and a read blocks until bytes arrive. So `ArrivingRows` counts the bytes in the stream's
buffer. If the buffer is empty, `ArrivingRows` waits for the file descriptor, for at most the time that the task allows.
It never reads past the last row, because the bytes after this row belong to Spark.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from pyspark.serializers import Serializer, SpecialLengths

from penstock.taskmanager.exchange.rows import TICK

TICK_ROW = bytes((TICK,))
SENT = b""
"""An empty row among a task's output. It flushes the rows before it."""
_LENGTH = struct.Struct(">i")


class BufferedStream(Protocol):
    """The methods of `io.BufferedReader` that this module uses."""

    def fileno(self) -> int: ...

    def peek(self, size: int = 0, /) -> bytes: ...

    def read(self, size: int = -1, /) -> bytes: ...


class ArrivingRows(Iterator[bytes]):
    """An iterator over the length-prefixed rows of a stream, until Spark ends the section.

    Args:
        stream: a buffered stream at the beginning of a row.
    """

    def __init__(self, stream: BufferedStream) -> None:
        self._stream = stream
        self._file = stream.fileno()
        self._buffered = 0
        """Number of bytes in the stream's buffer."""
        self._has_learned_buffering = False
        self.patience: Callable[[], float | None] = _unlimited
        """Returns how many seconds to wait for a row before a tick, or None to wait until a row arrives."""
        self.also: Callable[[], tuple[int, ...]] = tuple
        """Returns file descriptors. A tick occurs when one of them becomes readable."""

    def __next__(self) -> bytes:
        if not self._buffered and not self._arrives_in_time():
            return TICK_ROW
        length = int.from_bytes(self._take(4), "big", signed=True)
        if length == SpecialLengths.END_OF_DATA_SECTION:
            raise StopIteration
        return self._take(length)

    def _arrives_in_time(self) -> bool:
        """Fill the buffer, and return whether a row arrived in time.

        The first call does not use the timeout, because the stream may already have bytes in its buffer.
        """
        if self._has_learned_buffering:
            readable = select.select((self._file, *self.also()), (), (), self.patience())[0]
            if self._file not in readable:
                return False
        self._fill()
        return True

    def _fill(self) -> None:
        self._has_learned_buffering = True
        self._buffered = len(self._stream.peek())
        if not self._buffered:
            raise EOFError("the executor has closed the connection")

    def _take(self, size: int) -> bytes:
        if size <= self._buffered:
            self._buffered -= size
            return self._stream.read(size)
        parts = []
        while size:
            if not self._buffered:
                self._fill()
            part = self._stream.read(min(size, self._buffered))
            self._buffered -= len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


def _unlimited() -> None:
    return None


class RowSerializer(Serializer):  # type: ignore[misc]
    """A serializer of length-prefixed byte strings, which flushes when the task sends `SENT`.

    A task makes the rows for several slots together. The task flushes these rows together, because each write wakes up
    a thread of the executor. The class is defined in this module because workers import the module of a serializer.
    """

    def dump_stream(self, iterator: Iterable[bytes], stream: Any) -> None:
        pack = _LENGTH.pack
        for item in iterator:
            if item:
                stream.write(pack(len(item)) + item)
            else:
                stream.flush()

    def load_stream(self, stream: Any) -> ArrivingRows:
        return ArrivingRows(stream)


def discard(partition: int, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Read all rows of a task and return none. It is the function of a Spark job that only starts processes.

    >>> list(discard(0, [b"a", b"b"]))
    []
    """
    for _ in rows:
        pass
    return iter(())
