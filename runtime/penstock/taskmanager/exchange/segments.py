"""Rows between levels, cut into segments of bounded size.

Sockets and the shuffle's buffers and files bound the bytes between two Python workers only if rows are
small. Spark never splits a row, and a buffer that holds a row is as large as the row. So a row that is larger than a
*segment* (Flink's memory segment) travels as several segments, and the receiving task joins them. The row then takes
only the memory of segments on the way, however large a record is.

Rows from one sender to one receiver arrive in order, but rows of several senders arrive mixed. So a segment has the slot of
its sender, and a receiver has at most one unfinished row per sender.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from penstock.taskmanager.exchange.rows import MARKER

SEGMENT = 5
"""The kind of a segment row. `taskmanager.exchange.rows` has the other kinds."""
SEGMENT_BYTES = 32 * 1024
"""Size of a full segment in bytes, including its header."""
_HEADER = struct.Struct("<BBH")
"""kind, flags, slot of the sender"""
_LAST = 1
_MARKER_FLAG = 2
"""Flag of a marker's segments. The shuffle's reader aligns on markers (`jvm/AlignedRows.java`) without joining segments."""

Row = tuple[int, bytes]


def split_into_segments(rows: Iterable[Row], slot: int) -> Iterator[Row]:
    """Yield the rows (target slot, row) of the task in `slot`. A row larger than a segment becomes several segments.

    >>> [len(part) for _, part in split_into_segments([(0, bytes(40_000))], 1)]
    [32768, 7240]
    """
    size = SEGMENT_BYTES - _HEADER.size
    for target, row in rows:
        if len(row) <= SEGMENT_BYTES:
            yield target, row
            continue
        view = memoryview(row)
        flags = _MARKER_FLAG if row[0] == MARKER else 0
        for begin in range(0, len(row), size):
            last = _LAST if begin + size >= len(row) else 0
            yield target, _HEADER.pack(SEGMENT, flags | last, slot) + view[begin : begin + size]


def join_segments(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the rows as they were before `split_into_segments`. A joined row takes the place of its last segment.

    >>> sent = [part for _, part in split_into_segments([(0, bytes(40_000)), (0, b"x")], 1)]
    >>> [len(row) for row in join_segments(sent)]
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
