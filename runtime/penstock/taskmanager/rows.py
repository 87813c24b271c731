"""The rows that travel between levels: one byte of kind, a fixed header, a payload.

`DATA` rows are the *buffers* of the exchanges: many records of one sending subtask for one target subtask, with the
sender's watermark as it stands after these records. Payload codecs, tried in this order:

* Arrow IPC, when the sender has columns;
* marshal (version 2), for records made of builtin types exactly: the fastest way between two processes of the same
  Python, and it keeps tuples apart from lists. It never reaches storage;
* marshal of the fields, for NamedTuples, with the class named once per buffer;
* pickle, for everything else. Buffers live for one epoch between processes of one job that authenticate each other;
  nothing at rest is pickled (`design` 4).
"""

from __future__ import annotations

import marshal
import pickle
import struct
from array import array
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.taskmanager.batch import Batch, ColumnBatch, RowBatch

COMMAND = 0
DATA = 1
ACK = 2
MARKER = 3
TICK = 4

_HEADER = struct.Struct("<BBHHHqI")
"""kind, flags, exchange, sender, target, watermark, count"""
_HAS_TIMESTAMPS = 1
_IDLE = 2
_CODEC_SHIFT = 2
_EMPTY, _ARROW, _MARSHAL, _NAMED, _PICKLE = range(5)

_MARSHAL_VERSION = 2
"""Without back references: a hash look-up per object less, and a smaller buffer for small records."""


class Buffer(NamedTuple):
    """A decoded header; the payload is decoded when the records are wanted."""

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
    """One DATA row; `batch` None sends the watermark or the idleness alone."""
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


def retarget(row: bytes, target: int) -> bytes:
    """The same buffer for another subtask (broadcast encodes once)."""
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
        maker = _pickle(batch.make_rows)
        return _ARROW, b"".join((len(maker).to_bytes(4, "little"), maker, sink.getvalue().to_pybytes()))
    values = batch.values
    try:
        return _MARSHAL, marshal.dumps(values, _MARSHAL_VERSION)
    except ValueError:
        pass
    cls = type(values[0])
    if issubclass(cls, tuple) and hasattr(cls, "_make") and all(type(v) is cls for v in values):
        try:
            fields = marshal.dumps(list(map(tuple, values)), _MARSHAL_VERSION)
        except ValueError:
            pass
        else:
            name = _pickle(cls)
            return _NAMED, b"".join((len(name).to_bytes(4, "little"), name, fields))
    return _PICKLE, _pickle(values)


def _pickle(value: Any) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Lambdas, and classes made inside functions, go by value.
        from pyspark import cloudpickle

        return bytes(cloudpickle.dumps(value))


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
    if codec == _MARSHAL:
        return RowBatch(marshal.loads(memoryview(row)[offset:]), ts)
    if codec == _NAMED:
        size = int.from_bytes(row[offset : offset + 4], "little")
        offset += 4
        make = pickle.loads(row[offset : offset + size])._make
        return RowBatch(list(map(make, marshal.loads(memoryview(row)[offset + size :]))), ts)
    return RowBatch(pickle.loads(memoryview(row)[offset:]), ts)
