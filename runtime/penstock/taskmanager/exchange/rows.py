"""The rows that travel between levels: one byte for the kind, a fixed header, and a payload.

`DATA` rows are the *buffers* of the exchanges. A buffer has many records of one sending subtask for one target subtask, and the
sender's watermark after these records. The payload has one of these codecs:

* Arrow IPC, if the sender has columns;
* the forms of `records`, for Python objects.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.taskmanager.exchange import records

COMMAND = 0
DATA = 1
ACK = 2
MARKER = 3
TICK = 4
LATENCY = 6
OPEN_MARKER = 7
"""A marker that holds nothing back: the receiver may process later rows before all markers have arrived."""

_HEADER = struct.Struct("<BBHHHqI")
"""kind, flags, exchange, sender, target, watermark, count"""
_LATENCY = struct.Struct("<BBHHHIHd")
"""kind, flags, exchange, sender, target, source, subtask, time"""
_HAS_TIMESTAMPS = 1
_IDLE = 2
_CODEC_SHIFT = 2
_ARROW = 1
_RECORDS = 2
"""Code of the first form of `records`. The codes of the other forms follow."""


class LatencyMarker(NamedTuple):
    """A latency marker (`taskmanager.watching.latency`). `source`: index of the source operator. `at`: creation time, ms since the epoch."""

    source: int
    subtask: int
    at: float


class Buffer(NamedTuple):
    """A decoded header. `batch` decodes the payload."""

    exchange: int
    sender: int
    target: int
    watermark: int
    is_idle: bool
    size: int
    flags: int
    row: bytes

    def batch(self) -> Batch | None:
        return _decode(self.row, self.flags) if self.size else None


def encode_buffer(exchange: int, sender: int, target: int, watermark: int, idle: bool, batch: Batch | None) -> bytes:
    """Return one DATA row. If `batch` is None, the row carries only the watermark and the idleness."""
    flags = _IDLE if idle else 0
    if batch is None or not len(batch):
        return _HEADER.pack(DATA, flags, exchange, sender, target, watermark, 0)
    codec, body = _encode_body(batch)
    stamps = b""
    if batch.timestamps is not None:
        flags |= _HAS_TIMESTAMPS
        ts = batch.timestamps
        stamps = array("q", ts).tobytes() if isinstance(ts, list) else np.ascontiguousarray(ts, np.int64).tobytes()
    flags |= codec << _CODEC_SHIFT
    return b"".join((_HEADER.pack(DATA, flags, exchange, sender, target, watermark, len(batch)), stamps, body))


def encode_latency(exchange: int, sender: int, target: int, marker: LatencyMarker) -> bytes:
    """Return one LATENCY row. It has exchange and sender at the same positions as a DATA row.

    >>> row = encode_latency(3, 1, 0, LatencyMarker(7, 1, 1234.5))
    >>> exchange_of(row), sender_of(row), decode_latency(row)
    (3, 1, LatencyMarker(source=7, subtask=1, at=1234.5))
    """
    return _LATENCY.pack(LATENCY, 0, exchange, sender, target, *marker)


def decode_latency(row: bytes) -> LatencyMarker:
    return LatencyMarker(*_LATENCY.unpack_from(row)[5:])


def retarget(row: bytes, target: int) -> bytes:
    """Return the same buffer for another subtask, so that a broadcast encodes once."""
    return row[:6] + target.to_bytes(2, "little") + row[8:]


def decode_buffer(row: bytes) -> Buffer:
    _, flags, exchange, sender, target, watermark, count = _HEADER.unpack_from(row)
    return Buffer(exchange, sender, target, watermark, bool(flags & _IDLE), count, flags, row)


def exchange_of(row: bytes) -> int:
    return int.from_bytes(row[2:4], "little")


def sender_of(row: bytes) -> int:
    return int.from_bytes(row[4:6], "little")


def _encode_body(batch: Batch) -> tuple[int, bytes]:
    if isinstance(batch, ColumnBatch):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.columns.schema) as writer:
            writer.write_batch(batch.columns)
        maker = records.encode_object(batch.make_rows)
        return _ARROW, b"".join((len(maker).to_bytes(4, "little"), maker, sink.getvalue().to_pybytes()))
    form, body = records.encode_records(batch.values)
    return _RECORDS + form, body


def _decode(row: bytes, flags: int) -> Batch:
    count = int.from_bytes(row[16:20], "little") if len(row) >= 20 else 0
    offset = _HEADER.size
    codec = flags >> _CODEC_SHIFT
    stamps: bytes | None = None
    if flags & _HAS_TIMESTAMPS:
        stamps = row[offset : offset + 8 * count]
        offset += 8 * count
    if codec == _ARROW:
        size = int.from_bytes(row[offset : offset + 4], "little")
        offset += 4
        maker = pickle.loads(row[offset : offset + size])
        reader = pa.ipc.open_stream(pa.py_buffer(row)[offset + size :])
        timestamps = None if stamps is None else np.frombuffer(stamps, np.int64)
        return ColumnBatch(reader.read_next_batch(), timestamps, maker)
    ts: list[int] | None = None
    if stamps is not None:
        longs = array("q")
        longs.frombytes(stamps)
        ts = longs.tolist()
    return RowBatch(records.decode_records(codec - _RECORDS, memoryview(row)[offset:]), ts)
