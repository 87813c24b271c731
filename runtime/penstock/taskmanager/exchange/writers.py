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

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import compress, repeat
from operator import index
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa

from penstock.common.errors import StateTypeError, UserFunctionError
from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.transformation import Exchange
from penstock.records.batch import MIN_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.records.fields import Field, shortened
from penstock.state.encoding.tagged import type_name
from penstock.state.key_groups import column_key_groups, keys_key_groups, subtask_for_key_group
from penstock.taskmanager.exchange.rows import encode_buffer, retarget
from penstock.taskmanager.operators.user_code import position, raise_user_error, refuse_key, select_keys

BUFFER_RECORDS = 4_000
"""As many small records as stay in a core's cache from one operator to the next; five times as many cost half as much again
per record."""

BUFFER_BYTES = 128 * 1024
"""Of an encoded buffer; what is sent has at most twice as many, unless it is a single record."""
COLUMN_BUFFER_BYTES = 1024 * 1024
"""The same of columns: a call into Arrow costs the same for many records as for few."""
LARGEST_RECORD_BYTES = 2**31 - 1
"""Encoded: what an array of bytes may have in Java."""

_FIRST_RECORDS = 64
"""Of the first buffer, when nobody knows yet how large records are."""
_TARGETS_BY_MASK = 8
_KEYS_KNOWN = 1 << 17
_LEAST_TO_HASH = 1000
_BATCHES_TO_HASH = 64
"""Batches whose keys are all hashed after one with mostly new keys."""

Emit = Callable[[int, bytes], None]
"""(slot, row): hands a row to the runner."""


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
        self._watermark = MIN_TIMESTAMP
        self._idle = False
        self._sent: list[tuple[int, bool]] = [(MIN_TIMESTAMP, False)] * self._targets
        self._row_buffers = _FullBuffer(BUFFER_RECORDS, BUFFER_BYTES)
        self._column_buffers = _FullBuffer(1 << 31, COLUMN_BUFFER_BYTES)

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
            if self._rows[target]:
                self._cut(target)
            elif self._sent[target] != (self._watermark, self._idle):
                self._send(target, None)

    def _append(self, target: int, values: list[Any], timestamps: list[int] | None) -> None:
        """Take records for a target; a change between with and without timestamps cuts a buffer."""
        self._tell_watermark(target)
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

    def _tell_watermark(self, target: int) -> None:
        """Called before a target gets records: it must know the watermarks that were emitted ahead of them."""
        if self._sent[target][0] != self._watermark:
            if self._rows[target]:
                self._cut(target)
            else:
                self._send(target, None)

    def _cut(self, target: int) -> None:
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


class SingleTargetWriter(ExchangeWriter):
    """Forward, global, and everything with one target: no choice to make, columns stay columns."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, target: int) -> None:
        super().__init__(spec, sender, emit)
        self._target = target

    def reachable(self) -> range:
        return range(self._target, self._target + 1)

    def write(self, batch: Batch) -> None:
        if isinstance(batch, ColumnBatch):
            self._tell_watermark(self._target)
            if self._rows[self._target]:
                self._cut(self._target)
            self._send(self._target, batch)
        else:
            self._append(self._target, batch.values, batch.timestamps)


class GlobalWriter(SingleTargetWriter):
    """Every record to subtask 0; watermarks to all, as Flink's channels go to all (A31)."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit, 0)

    def reachable(self) -> range:
        return range(self._targets)


class OneKeyedTargetWriter(SingleTargetWriter):
    """Key groups that all belong to one subtask: every record goes there, whatever its key.

    So no key is computed, but for the first of a batch: one of a type that is no key is refused as it would be with more
    subtasks, also where no state is ever asked for it.
    """

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit, 0)
        selector = spec.partitioning.key_selector
        assert selector is not None
        self._selector = selector
        self._field = spec.partitioning.key_field
        self._kinds: set[type] = set()

    def write(self, batch: Batch) -> None:
        if isinstance(batch, RowBatch):
            self._look_at_rows(batch.values)
        elif self._field is not None:
            self._look_at_columns(batch, self._field)
        super().write(batch)

    def _look_at_rows(self, values: list[Any]) -> None:
        first = values[:1]
        for key in select_keys(self.spec, self._selector, first):
            if type(key) not in self._kinds:
                refuse_key(self.spec, key, first[0])
                self._kinds.add(type(key))
            if _may_hold_nan(key):
                self._look_for_nan(values)

    def _look_for_nan(self, values: list[Any]) -> None:
        for key, value in zip(select_keys(self.spec, self._selector, values), values, strict=True):
            if _holds_nan(key):
                refuse_key(self.spec, key, value)

    def _look_at_columns(self, batch: ColumnBatch, field: Field) -> None:
        column = _column(batch.columns, field)
        if column is None or not len(column):
            return
        if pa.types.is_nested(column.type):
            refuse_key(self.spec, column[0].as_py(), batch.rows().values[0])
        elif pa.types.is_floating(column.type):
            self._look_for_nan(batch.rows().values)


def _may_hold_nan(key: Any) -> bool:
    return isinstance(key, float | Decimal | np.floating) or (isinstance(key, tuple) and any(map(_may_hold_nan, key)))


def _holds_nan(key: Any) -> bool:
    return bool(key != key) or (isinstance(key, tuple) and any(map(_holds_nan, key)))


class KeyTargets:
    """key -> target subtask, for many keys at once.

    Keys that come again are looked up; what is new is hashed by column. Looking up in a large table costs more than hashing,
    so while most keys of a batch are new, all of them are hashed and none is kept.

    Args:
        targets: the subtask of every key group.
    """

    def __init__(self, targets: list[int]) -> None:
        self._max_parallelism = len(targets)
        self._of_group = np.array(targets, np.int64)
        self._known: dict[Any, int] = {}
        self._batches_to_hash = 0

    def of(self, keys: list[Any]) -> list[int]:
        """The target of every key."""
        if self._batches_to_hash:
            self._batches_to_hash -= 1
            return self._hashed(keys)
        known = self._known
        found = list(map(known.get, keys))
        if None not in found:
            return cast("list[int]", found)
        fresh = list(dict.fromkeys(compress(keys, [target is None for target in found])))
        if len(fresh) > len(keys) // 2 and len(keys) >= _LEAST_TO_HASH:
            self._batches_to_hash = _BATCHES_TO_HASH
            return self._hashed(keys)
        if len(known) + len(fresh) > _KEYS_KNOWN:
            known.clear()
            fresh = list(dict.fromkeys(keys))
        known.update(zip(fresh, self._hashed(fresh), strict=True))
        return list(map(known.__getitem__, keys))

    def _hashed(self, keys: list[Any]) -> list[int]:
        targets: list[int] = self._of_group[keys_key_groups(keys, self._max_parallelism)].tolist()
        return targets


class KeyGroupWriter(ExchangeWriter):
    """key -> key group -> subtask. A columnar key is hashed by column, once per distinct value."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit)
        selector = spec.partitioning.key_selector
        assert selector is not None
        self._selector = selector
        self._field = spec.partitioning.key_field
        groups = spec.max_parallelism
        target_of = [subtask_for_key_group(group, self._targets, groups) for group in range(groups)]
        self._target_array = np.array(target_of, np.int64)
        self._key_targets = KeyTargets(target_of)
        few = range(self._targets) if self._targets <= _TARGETS_BY_MASK else ()
        self._masks = [bytes(int(n == target) for n in range(256)) for target in few]

    def write(self, batch: Batch) -> None:
        if isinstance(batch, ColumnBatch) and self._field is not None:
            column = _column(batch.columns, self._field)
            if column is not None:
                self._write_columns(batch, column)
                return
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        keys = select_keys(self.spec, self._selector, values)
        try:
            chosen = self._key_targets.of(keys)
        except Exception as error:
            self._fail(error, keys, values)
        if self._masks:
            self._split_by_mask(values, timestamps, bytes(chosen))
            return
        split: list[list[Any]] = [[] for _ in range(self._targets)]
        for value, target in zip(values, chosen, strict=True):
            split[target].append(value)
        stamps: list[list[int]] | None = None
        if timestamps is not None:
            stamps = [[] for _ in range(self._targets)]
            for timestamp, target in zip(timestamps, chosen, strict=True):
                stamps[target].append(timestamp)
        for target, part in enumerate(split):
            if part:
                self._append(target, part, None if stamps is None else stamps[target])

    def _split_by_mask(self, values: list[Any], timestamps: list[int] | None, chosen: bytes) -> None:
        """With few targets, going over the records once per target in C beats a loop of appends."""
        for target, mask in enumerate(self._masks):
            selected = chosen.translate(mask)
            part = list(compress(values, selected))
            if part:
                self._append(target, part, None if timestamps is None else list(compress(timestamps, selected)))

    def _write_columns(self, batch: ColumnBatch, column: pa.Array) -> None:
        try:
            targets = self._target_array[column_key_groups(column, self.spec.max_parallelism)]
        except Exception as error:
            self._fail(error, column.to_pylist(), batch.rows().values)
        for target in range(self._targets):
            indices = np.flatnonzero(targets == target)
            if not len(indices):
                continue
            self._tell_watermark(target)
            if self._rows[target]:
                self._cut(target)
            part = batch.columns.take(pa.array(indices))
            timestamps = None if batch.timestamps is None else batch.timestamps[indices]
            self._send(target, ColumnBatch(part, timestamps, batch.make_rows))

    def _fail(self, error: Exception, keys: list[Any], values: list[Any]) -> NoReturn:
        """One of the keys is none. All were hashed at once: which one it is, is looked for only now."""
        for key, value in zip(keys, values, strict=True):
            refuse_key(self.spec, key, value)
        raise_user_error(self.spec, error, f"hashing the keys of a batch of {len(values)} records")


class RoundRobinWriter(ExchangeWriter):
    """Rebalance: record by record over all targets; rescale: over this sender's share of them."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, targets: range) -> None:
        super().__init__(spec, sender, emit)
        self._own = targets
        self._next = sender % len(targets)

    def write(self, batch: Batch) -> None:
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        width = len(self._own)
        for offset in range(min(width, len(values))):
            target = self._own[(self._next + offset) % width]
            self._append(target, values[offset::width], None if timestamps is None else timestamps[offset::width])
        self._next = (self._next + len(values)) % width


class BroadcastWriter(ExchangeWriter):
    """Every record to every subtask; encoded once."""

    def write(self, batch: Batch) -> None:
        if isinstance(batch, ColumnBatch):
            self.flush()
            self._send_all(batch)
            return
        self._append(0, batch.values, batch.timestamps)

    def flush(self) -> None:
        if self._rows[0]:
            self._cut(0)
        elif self._sent[0] != (self._watermark, self._idle):
            self._send_all(None)

    def _tell_watermark(self, target: int) -> None:
        if self._sent[0][0] != self._watermark:
            self.flush()

    def _cut(self, target: int) -> None:
        batch = RowBatch(self._rows[0], self._stamps[0])
        self._rows[0] = []
        self._stamps[0] = None
        self._send_all(batch)

    def _send_all(self, batch: Batch | None) -> None:
        now = (self._watermark, self._idle)
        for part, row in self._encoded(0, batch, self._sent[0], now):
            self.records_out += part * self._targets
            self.bytes_out += len(row) * self._targets
            for target in range(self._targets):
                self._emit(target, row if target == 0 else retarget(row, target))
        self._sent[0] = now


class ChosenTargetWriter(ExchangeWriter):
    """Shuffle (uniform random) and the user's partitioner: a target per record."""

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit, choose: Callable[[list[Any]], list[int]]) -> None:
        super().__init__(spec, sender, emit)
        self._choose = choose

    def write(self, batch: Batch) -> None:
        rows = batch.rows()
        split: dict[int, tuple[list[Any], list[int]]] = {}
        stamps = rows.timestamps
        for n, (value, target) in enumerate(zip(rows.values, self._choose(rows.values), strict=True)):
            part = split.setdefault(target, ([], []))
            part[0].append(value)
            if stamps is not None:
                part[1].append(stamps[n])
        for target, (values, part_stamps) in split.items():
            self._append(target, values, None if stamps is None else part_stamps)


class Partitioner:
    """The targets that the user's partitioner chooses; what it raises, and what is no target, names the record."""

    def __init__(self, spec: ExchangeSpec) -> None:
        partitioner, selector = spec.partitioning.partitioner, spec.partitioning.key_selector
        assert partitioner is not None
        assert selector is not None
        self._spec = spec
        self._partitioner = partitioner
        self._selector = selector
        self._targets = frozenset(range(spec.parallelism))

    def __call__(self, values: list[Any]) -> list[int]:
        keys = select_keys(self._spec, self._selector, values)
        iterator = iter(keys)
        try:
            chosen = list(map(self._partitioner, iterator, repeat(self._spec.parallelism)))
        except Exception as error:
            record = shortened(values[position(keys, iterator)])
            raise_user_error(self._spec, error, f"the partitioner on {record}", "let it choose a subtask for every key")
        try:
            is_right = self._targets.issuperset(map(index, chosen))
        except TypeError:  # no whole numbers
            is_right = False
        if not is_right:
            self._refuse(chosen, values)
        return chosen

    def _refuse(self, chosen: list[Any], values: list[Any]) -> NoReturn:
        partitions = len(self._targets)
        wrong = (n for n, target in enumerate(chosen) if not (hasattr(target, "__index__") and target in self._targets))
        n = next(wrong)
        raise UserFunctionError(
            f"the partitioner chose subtask {chosen[n]!r} for {shortened(values[n])}; it must return 0..{partitions - 1} "
            f"for {partitions} partitions",
            remedy="compute the subtask from the number of partitions that the partitioner is given",
            operator=self._spec.name,
            location=self._spec.user_location,
        )


def create_writer(spec: ExchangeSpec, sender: int, emit: Emit) -> ExchangeWriter:
    """The writer for an exchange, as seen from one sending subtask."""
    partitioning, targets = spec.partitioning, spec.parallelism
    match partitioning.exchange:
        case Exchange.FORWARD:
            return SingleTargetWriter(spec, sender, emit, sender)
        case Exchange.GLOBAL:
            return GlobalWriter(spec, sender, emit)
        case Exchange.KEY_GROUP:
            return OneKeyedTargetWriter(spec, sender, emit) if targets == 1 else KeyGroupWriter(spec, sender, emit)
        case Exchange.BROADCAST:
            return BroadcastWriter(spec, sender, emit)
        case Exchange.REBALANCE:
            return RoundRobinWriter(spec, sender, emit, range(targets))
        case Exchange.RESCALE:
            return RoundRobinWriter(spec, sender, emit, _rescale_share(sender, spec.source_parallelism, targets))
        case Exchange.SHUFFLE:
            rng = random.Random()
            return ChosenTargetWriter(spec, sender, emit, lambda vs: [rng.randrange(targets) for _ in vs])
        case Exchange.CUSTOM:
            return ChosenTargetWriter(spec, sender, emit, Partitioner(spec))


def _rescale_share(sender: int, senders: int, targets: int) -> range:
    """Flink's rescale: with more targets than senders a sender has a run of them, else several senders share one."""
    if targets >= senders:
        return range(sender * targets // senders, (sender + 1) * targets // senders)
    return range(sender * targets // senders, sender * targets // senders + 1)


def _column(columns: pa.RecordBatch, field: str | int) -> pa.Array | None:
    if isinstance(field, int):
        return columns.column(field) if field < columns.num_columns else None
    index = columns.schema.get_field_index(field)
    return columns.column(index) if index >= 0 else None
