"""The sending side of an exchange. It chooses the subtask for a record, and cuts the records into buffers.

A writer collects records per target. It cuts a buffer:

* at `BUFFER_RECORDS` records or, if records are large, at about `BUFFER_BYTES`;
* when the task flushes: at the end of an epoch, or at the buffer timeout of the pipelined runner;
* between two records if a watermark lies between them.

The size of a record is known only after encoding. So earlier buffers decide how many records the next buffer may have.
A buffer of more than twice the limit is encoded again with at most half of the records, until it fits or has one
record.

Every buffer carries the watermark of its sender *after* its records. So the receiver sees a watermark after all records
that the sender emitted before it, and before all records that the sender emitted after it. If a record is late after a
punctuated watermark, it is late in every subtask. The ends of buffers do not matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from penstock.common.errors import StateTypeError
from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import MIN_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.records.fields import shortened
from penstock.state.encoding.tagged import type_name
from penstock.taskmanager.exchange.column_buffer import FULL_BYTES, ColumnBuffer
from penstock.taskmanager.exchange.rows import LatencyMarker, encode_buffer, encode_latency
from penstock.taskmanager.operators.user_code import raise_user_error
from penstock.taskmanager.protocol import KeyCounts

Emit = Callable[[int, bytes], None]
"""Function that hands a row to the runner. Its arguments are the slot and the row."""


BUFFER_RECORDS = 4_000
"""Maximum records of a buffer. This number of small records fits in a core's cache between operators. A record costs
50% more in buffers with five times as many records.
"""


BUFFER_BYTES = 128 * 1024
"""Target size of an encoded buffer in bytes.

A sent buffer has at most twice as many bytes, unless it has only one record.
"""


FEW_RECORDS = 256
"""Minimum records for columns. A batch of fewer objects is not converted to columns, and columns with fewer records do
not wait for more.

In sender and receiver together, columns of one record cost 17 times as much as objects. Columns of 100 records cost four times as much, and
columns of about 900 records cost the same."""


LARGEST_RECORD_BYTES = 2**31 - 1
"""Maximum size of an encoded record: the limit of a byte array in Java."""


_FIRST_RECORDS = 64
"""Maximum records of the first buffer, when the size of a record is not known."""


class _FullBuffer:
    """The number of records that a buffer may have, learned from the previous buffers.

    Args:
        most: maximum records.
        size: target size of a buffer in bytes.
    """

    __slots__ = ("_bytes", "_max_records", "records")

    def __init__(self, most: int, size: int) -> None:
        self._max_records = most
        self._bytes = size
        self.records = min(most, _FIRST_RECORDS)

    def may_send(self, records: int, size: int) -> bool:
        """Return whether a buffer of this size may be sent. If not, the caller must encode a buffer of `self.records` instead."""
        fitting = max(1, self._bytes * records // size)
        if records > 1 and size > 2 * self._bytes:
            self.records = min(fitting, records // 2)
            return False
        self.records = min(fitting, self._max_records, 2 * max(self.records, records))
        return True


class ExchangeWriter(ABC):
    """The base of all writers, which broadcasts watermarks and idleness and cuts buffers.

    Args:
        spec: the exchange.
        sender: subtask index of the sending stage.
        emit: receives the rows.
    """

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        self.spec = spec
        self.sender = sender
        self.records_out = 0
        self.bytes_out = 0
        self._emit = emit
        self._targets = spec.parallelism
        self._rows: list[list[Any]] = [[] for _ in range(self._targets)]
        self._stamps: list[list[int] | None] = [None] * self._targets
        self._columns = [ColumnBuffer() for _ in range(self._targets)]
        """Columns that wait, by target. A target has either waiting rows or waiting columns."""
        self._watermark = MIN_TIMESTAMP
        self._idle = False
        self._sent: list[tuple[int, bool]] = [(MIN_TIMESTAMP, False)] * self._targets
        self._marked: list[tuple[int, bytes]] = []
        """Latency markers with their target. Each follows the records that wait for the target."""
        self._next_marked = sender
        self._row_buffers = _FullBuffer(BUFFER_RECORDS, BUFFER_BYTES)
        self._column_buffers = _FullBuffer(1 << 31, FULL_BYTES)

    def reachable(self) -> range:
        """Return the targets that this sender may send to. Watermarks go to all of them."""
        return range(self._targets)

    def take_key_counts(self) -> KeyCounts | None:
        """Return the frequent keys since the last report, or None."""
        return None

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Put the batch's records, in order, into the buffers of their targets."""

    def watermark(self, timestamp: int) -> None:
        self._watermark = timestamp

    def idle(self, is_idle: bool) -> None:
        self._idle = is_idle

    def flush(self) -> None:
        """Send the collected records, and send the watermark to each target that does not know it."""
        for target in self.reachable():
            if self._has_pending(target):
                self._cut(target)
            elif self._sent[target] != (self._watermark, self._idle):
                self._send(target, None)
        self._send_markers(None)

    def latency(self, marker: LatencyMarker) -> None:
        """Send the marker to the next target (round robin), after the records that wait for this target."""
        targets = self.reachable()
        target = targets[self._next_marked % len(targets)]
        self._next_marked += 1
        self._marked.append((target, encode_latency(self.spec.id, self.sender, target, marker)))

    def _send_markers(self, to: int | None) -> None:
        """Send the markers for this target, or all markers if `to` is None."""
        if self._marked:
            marked, self._marked = self._marked, []
            for target, row in marked:
                if to is None or target == to:
                    self._emit(target, row)
                else:
                    self._marked.append((target, row))

    def _as_columns(self, batch: Batch) -> ColumnBatch | None:
        """Return the batch if it should travel as columns, else None."""
        if isinstance(batch, ColumnBatch) and batch.travels_as_columns(
            wanted=self.spec.takes_columns and len(batch) >= FEW_RECORDS
        ):
            return batch
        return None

    @property
    def has_unflushed(self) -> bool:
        """Return whether `flush` has something to send."""
        now = (self._watermark, self._idle)
        if self._marked:
            return True
        return any(self._has_pending(target) or self._sent[target] != now for target in self.reachable())

    def _append(self, target: int, values: list[Any], timestamps: list[int] | None) -> None:
        """Take records for a target. A change between records with and without timestamps cuts a buffer."""
        self._send_watermark(target)
        if self._columns[target]:
            self._cut(target)
        rows = self._rows[target]
        stamps = self._stamps[target]
        if rows and (stamps is None) != (timestamps is None):
            self._cut(target)
            rows = self._rows[target]
            stamps = None
        if rows:
            rows.extend(values)
            if stamps is not None and timestamps is not None:
                stamps.extend(timestamps)
        else:
            self._rows[target] = rows = list(values)
            self._stamps[target] = None if timestamps is None else list(timestamps)
        if len(rows) >= self._row_buffers.records:
            self._cut(target)

    def _append_columns(self, target: int, batch: ColumnBatch) -> None:
        """Take a copy of records for a target, as columns. If they do not fit the waiting records, send the waiting records first."""
        self._send_watermark(target)
        columns = self._columns[target]
        if self._rows[target] or not columns.fits(batch):
            self._cut(target)
        columns.add(batch)
        if columns.is_full:
            self._cut(target)

    def _has_pending(self, target: int) -> bool:
        return bool(self._rows[target] or self._columns[target])

    def _send_watermark(self, target: int) -> None:
        """Send the watermark to a target before it gets records that were emitted after the watermark."""
        if self._sent[target][0] != self._watermark:
            if self._has_pending(target):
                self._cut(target)
            else:
                self._send(target, None)

    def _cut(self, target: int) -> None:
        if self._columns[target]:
            for part in self._columns[target].take():
                self._send(target, part)
            return
        batch = RowBatch(self._rows[target], self._stamps[target])
        self._rows[target] = []
        self._stamps[target] = None
        self._send(target, batch)

    def _send(self, target: int, batch: Batch | None) -> None:
        now = (self._watermark, self._idle)
        for part, row in self._encoded(target, batch, self._sent[target], now):
            self.records_out += part
            self.bytes_out += len(row)
            self._emit(target, row)
        self._sent[target] = now
        self._send_markers(target)

    def _encoded(
        self, target: int, batch: Batch | None, before: tuple[int, bool], now: tuple[int, bool]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (records, row) of the buffers that the batch becomes.

        Args:
            before: watermark and idleness that the target knows. All buffers but the last carry them.
            now: watermark and idleness after the records.
        """
        if batch is None:
            yield 0, self._encode(target, None, now)
            return
        full = self._column_buffers if isinstance(batch, ColumnBatch) else self._row_buffers
        begin, size = 0, len(batch)
        while begin < size:
            remaining = size - begin
            end = size if remaining < 2 * full.records else begin + full.records
            part = batch if end - begin == size else batch.slice(begin, end)
            row = self._encode(target, part, now if end == size else before)
            if full.may_send(end - begin, len(row)):
                if len(row) > LARGEST_RECORD_BYTES:
                    self._refuse_size(part, len(row))
                begin = end
                yield len(part), row

    def _encode(self, target: int, batch: Batch | None, state: tuple[int, bool]) -> bytes:
        try:
            return encode_buffer(self.spec.id, self.sender, target, *state, batch)
        except Exception as error:
            self._refuse_to_send(error, batch)

    def _refuse_size(self, batch: Batch, size: int) -> NoReturn:
        value = batch.rows().values[0]
        raise StateTypeError(
            f"a {type_name(type(value))} of {size:,} bytes cannot be sent to another subtask: {shortened(value)}; the "
            f"limit is {LARGEST_RECORD_BYTES:,} bytes",
            remedy="keep such a large object in a file or an object store, and send its path",
            operator=self.spec.name,
            location=self.spec.user_location,
        )

    def _refuse_to_send(self, error: Exception, batch: Batch | None) -> NoReturn:
        """Raise for the record that cannot be sent.

        The records were encoded together, so the wrong record must be found first.
        """
        values = [] if batch is None else batch.rows().values
        for value in values:
            try:
                encode_buffer(self.spec.id, self.sender, 0, self._watermark, self._idle, RowBatch([value]))
            except Exception as refusal:
                raise StateTypeError(
                    f"a {type_name(type(value))} cannot be sent to another subtask: {shortened(value)}: {refusal}",
                    remedy="send plain values or objects that pickle supports, such as a list instead of a generator. Open files, "
                    "locks and connections in open() of the function that uses them",
                    operator=self.spec.name,
                    location=self.spec.user_location,
                ) from refusal
        raise_user_error(self.spec, error, f"sending a batch of {len(values)} records")
