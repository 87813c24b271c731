"""Sending side of an exchange: which record goes to which subtask, and when a buffer is cut.

A writer collects records per target and cuts a buffer at `BUFFER_RECORDS` or, of larger records, at about `BUFFER_BYTES`,
when the task asks for a flush (the end of an epoch, or the buffer timeout of the pipelined runner), and between records that
a watermark stands between. How large a record is shows when it is encoded: the buffers before say how many records the next
one may have, and one that comes out larger than twice the bound is cut in halves until it does not, or has one record. Every buffer
carries the watermark of its sender as it stands *after* its records. So the receiver never sees a watermark before the
records it covers, and never a record before the watermarks that were emitted ahead of it (T6): what is late behind a
punctuated watermark is late in every subtask, wherever buffers happen to end.
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
from penstock.taskmanager.exchange.held_columns import ENOUGH_BYTES, HeldColumns
from penstock.taskmanager.exchange.rows import LatencyMarker, encode_buffer, encode_latency
from penstock.taskmanager.operators.user_code import raise_user_error

Emit = Callable[[int, bytes], None]
"""(slot, row): hands a row to the runner."""


BUFFER_RECORDS = 4_000
"""As many small records as stay in a core's cache from one operator to the next; five times as many cost half as much again
per record."""


BUFFER_BYTES = 128 * 1024
"""Of an encoded buffer; what is sent has at most twice as many, unless it is a single record."""


FEW_RECORDS = 256
"""Fewer decoded objects are not made into columns: one costs seventeen times as much then, sender and receiver together, a hundred
four times, and some nine hundred the same. And columns do not wait for others to travel with."""


LARGEST_RECORD_BYTES = 2**31 - 1
"""Encoded: what an array of bytes may have in Java."""


_FIRST_RECORDS = 64
"""Of the first buffer, when nobody knows yet how large records are."""


class _FullBuffer:
    """How many records a buffer may have, as learnt from those before.

    Args:
        most: records.
        size: bytes that a buffer should have.
    """

    __slots__ = ("_bytes", "_most", "records")

    def __init__(self, most: int, size: int) -> None:
        self._most = most
        self._bytes = size
        self.records = min(most, _FIRST_RECORDS)

    def takes(self, records: int, size: int) -> bool:
        """Whether a buffer that came out so large may go; else it is to be made again, of `self.records`."""
        fitting = max(1, self._bytes * records // size)
        if records > 1 and size > 2 * self._bytes:
            self.records = min(fitting, records // 2)
            return False
        self.records = min(fitting, self._most, 2 * max(self.records, records))
        return True


class ExchangeWriter(ABC):
    """Base: broadcasting of watermarks and idleness, cutting of buffers.

    Args:
        spec: the exchange.
        sender: subtask index of the sending stage.
        emit: where rows go.
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
        self._columns = [HeldColumns() for _ in range(self._targets)]
        """For a target either rows wait or columns do."""
        self._watermark = MIN_TIMESTAMP
        self._idle = False
        self._sent: list[tuple[int, bool]] = [(MIN_TIMESTAMP, False)] * self._targets
        self._marked: list[tuple[int, bytes]] = []
        """Latency markers by target, behind what is collected for it."""
        self._next_marked = sender
        self._row_buffers = _FullBuffer(BUFFER_RECORDS, BUFFER_BYTES)
        self._column_buffers = _FullBuffer(1 << 31, ENOUGH_BYTES)

    def reachable(self) -> range:
        """Targets this sender may send to; watermarks go to all of them."""
        return range(self._targets)

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Put the batch's records, in order, into the buffers of their targets."""

    def watermark(self, timestamp: int) -> None:
        self._watermark = timestamp

    def idle(self, is_idle: bool) -> None:
        self._idle = is_idle

    def flush(self) -> None:
        """Send what is collected, and the watermark to those who have not seen it."""
        for target in self.reachable():
            if self._holds(target):
                self._cut(target)
            elif self._sent[target] != (self._watermark, self._idle):
                self._send(target, None)
        self._send_markers(None)

    def latency(self, marker: LatencyMarker) -> None:
        """Send it to one of the targets, each in turn, with what is collected for it."""
        targets = self.reachable()
        target = targets[self._next_marked % len(targets)]
        self._next_marked += 1
        self._marked.append((target, encode_latency(self.spec.id, self.sender, target, marker)))

    def _send_markers(self, to: int | None) -> None:
        """Those for this target; None: all."""
        if self._marked:
            marked, self._marked = self._marked, []
            for target, row in marked:
                if to is None or target == to:
                    self._emit(target, row)
                else:
                    self._marked.append((target, row))

    def _as_columns(self, batch: Batch) -> ColumnBatch | None:
        """The batch, if it is to travel as columns."""
        if isinstance(batch, ColumnBatch) and batch.goes_as_columns(
            wanted=self.spec.takes_columns and len(batch) >= FEW_RECORDS
        ):
            return batch
        return None

    @property
    def holds_back(self) -> bool:
        """Whether `flush` has something to send."""
        now = (self._watermark, self._idle)
        if self._marked:
            return True
        return any(self._holds(target) or self._sent[target] != now for target in self.reachable())

    def _append(self, target: int, values: list[Any], timestamps: list[int] | None) -> None:
        """Take records for a target; a change between with and without timestamps cuts a buffer."""
        self._tell_watermark(target)
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
        """Take records for a target as columns, a copy of its own; what cannot travel with those that wait sends these ahead."""
        self._tell_watermark(target)
        held = self._columns[target]
        if self._rows[target] or not held.fits(batch):
            self._cut(target)
        held.add(batch)
        if held.is_enough:
            self._cut(target)

    def _holds(self, target: int) -> bool:
        return bool(self._rows[target] or self._columns[target])

    def _tell_watermark(self, target: int) -> None:
        """Called before a target gets records: it must know the watermarks that were emitted ahead of them."""
        if self._sent[target][0] != self._watermark:
            if self._holds(target):
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
        """(records, row) of the buffers that the batch makes.

        Args:
            before: watermark and idleness that the target knows: those of all buffers but the last.
            now: those that stand behind the records.
        """
        if batch is None:
            yield 0, self._encode(target, None, now)
            return
        full = self._column_buffers if isinstance(batch, ColumnBatch) else self._row_buffers
        begin, size = 0, len(batch)
        while begin < size:
            left = size - begin
            end = size if left < 2 * full.records else begin + full.records
            part = batch if end - begin == size else batch.slice(begin, end)
            row = self._encode(target, part, now if end == size else before)
            if full.takes(end - begin, len(row)):
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
            f"a {type_name(type(value))} of {size:,} bytes cannot be sent to another subtask: {shortened(value)}; a record may "
            f"have {LARGEST_RECORD_BYTES:,}",
            remedy="keep objects of such a size in files or an object store, and send where they are",
            operator=self.spec.name,
            location=self.spec.user_location,
        )

    def _refuse_to_send(self, error: Exception, batch: Batch | None) -> NoReturn:
        """One of the records cannot travel. All were encoded at once: which one it is, is looked for only now."""
        values = [] if batch is None else batch.rows().values
        for value in values:
            try:
                encode_buffer(self.spec.id, self.sender, 0, self._watermark, self._idle, RowBatch([value]))
            except Exception as refusal:
                raise StateTypeError(
                    f"a {type_name(type(value))} cannot be sent to another subtask: {shortened(value)}: {refusal}",
                    remedy="send plain values or objects that can be pickled: a list in place of a generator; what is open "
                    "(a file, a lock, a connection) belongs into open() of the function that uses it",
                    operator=self.spec.name,
                    location=self.spec.user_location,
                ) from refusal
        raise_user_error(self.spec, error, f"sending a batch of {len(values)} records")
