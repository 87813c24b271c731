"""Rows on their way between levels, cut into segments of bounded size.

Everything between two Python workers, sockets, the shuffle's buffers, its files, is bounded by bytes only as far as a row is
small: Spark counts a buffer as one of its size, whatever is in it, and never cuts one up. So a row that is larger than a
*segment* (Flink's memory segment) travels as several, and is put together by the task that it is for. What is on the way
for it meanwhile takes the memory of segments, however large a record is.

Rows of one sending task for one receiver come in order; those of several senders come mixed. So a segment names the slot of
its sender, and a receiver has at most one unfinished row per sender.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from penstock.taskmanager.exchange.rows import MARKER

SEGMENT = 5
"""Kind of a row; `taskmanager.exchange.rows` has the others."""
SEGMENT_BYTES = 32 * 1024
"""Of a whole segment, its header included."""
_HEADER = struct.Struct("<BBH")
"""kind, flags, slot of the sender"""
_LAST = 1
_OF_MARKER = 2
"""The shuffle's reader aligns on markers (`jvm/AlignedRows.java`): it must know one without putting it together."""

Row = tuple[int, bytes]


def in_segments(rows: Iterable[Row], slot: int) -> Iterator[Row]:
    """The rows (target slot, row) of the task in `slot`; those that are larger than a segment as several.

    >>> [len(part) for _, part in in_segments([(0, bytes(40_000))], 1)]
    [32768, 7240]
    """
    size = SEGMENT_BYTES - _HEADER.size
    for target, row in rows:
        if len(row) <= SEGMENT_BYTES:
            yield target, row
            continue
        view = memoryview(row)
        flags = _OF_MARKER if row[0] == MARKER else 0
        for begin in range(0, len(row), size):
            last = _LAST if begin + size >= len(row) else 0
            yield target, _HEADER.pack(SEGMENT, flags | last, slot) + view[begin : begin + size]


def put_together(rows: Iterable[bytes]) -> Iterator[bytes]:
    """The rows as they were before `in_segments`, each where its last segment is.

    >>> sent = [part for _, part in in_segments([(0, bytes(40_000)), (0, b"x")], 1)]
    >>> [len(row) for row in put_together(sent)]
    [40000, 1]
    """
    parts: dict[int, list[memoryview]] = {}
    for row in rows:
        if row[0] != SEGMENT:
            yield row
            continue
        _, flags, slot = _HEADER.unpack_from(row)
        of_sender = parts.setdefault(slot, [])
        of_sender.append(memoryview(row)[_HEADER.size :])
        if flags & _LAST:
            del parts[slot]
            yield b"".join(of_sender)
