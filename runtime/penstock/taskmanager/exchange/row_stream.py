"""Rows of a task as they come from Spark and go to it; and a tick where none comes in time.

A task of a pipelined attempt sleeps until there is something to do: a row, a timer that is due, a buffer that has waited long
enough. Spark hands it a stream to read from, and a read does not end before something has come. So what the stream's own
buffer holds is counted here: only when it is empty does a read have to wait, and then it is the file descriptor that is
waited for, as long as the task says. Nothing behind the last row is read, for that is Spark's.
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
"""Among the rows that a task makes: what was made until here is to leave now."""
_LENGTH = struct.Struct(">i")


class BufferedStream(Protocol):
    """What is used of an `io.BufferedReader`."""

    def fileno(self) -> int: ...

    def peek(self, size: int = 0, /) -> bytes: ...

    def read(self, size: int = -1, /) -> bytes: ...


class ArrivingRows(Iterator[bytes]):
    """Length-prefixed rows of a stream, until Spark says that there are no more.

    Args:
        stream: buffered, and at the beginning of a row.
    """

    def __init__(self, stream: BufferedStream) -> None:
        self._stream = stream
        self._file = stream.fileno()
        self._held = 0
        """Bytes in the stream's own buffer."""
        self._knows_held = False
        self.patience: Callable[[], float | None] = _for_ever
        """How long (s) to wait for a row before there is a tick; None: until one comes."""
        self.also: Callable[[], tuple[int, ...]] = tuple
        """Gives files; when one of them becomes readable, there is a tick."""

    def __next__(self) -> bytes:
        if not self._held and not self._comes_in_time():
            return TICK_ROW
        length = int.from_bytes(self._take(4), "big", signed=True)
        if length == SpecialLengths.END_OF_DATA_SECTION:
            raise StopIteration
        return self._take(length)

    def _comes_in_time(self) -> bool:
        """What the stream held before anybody counted it is there at once."""
        if self._knows_held:
            readable = select.select((self._file, *self.also()), (), (), self.patience())[0]
            if self._file not in readable:
                return False
        self._fill()
        return True

    def _fill(self) -> None:
        self._knows_held = True
        self._held = len(self._stream.peek())
        if not self._held:
            raise EOFError("the executor has closed the connection")

    def _take(self, size: int) -> bytes:
        if size <= self._held:
            self._held -= size
            return self._stream.read(size)
        parts = []
        while size:
            if not self._held:
                self._fill()
            part = self._stream.read(min(size, self._held))
            self._held -= len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


def _for_ever() -> None:
    return None


class RowSerializer(Serializer):  # type: ignore[misc]
    """Length-prefixed byte strings, flushed where the task says that they are to leave (`SENT`): rows for several slots are made
    together, and each write wakes up a thread of the executor.

    Defined here and not where the JobManager names it, because workers import the module that it is in.
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
