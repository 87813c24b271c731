"""The `key_by` exchange, which sends by key group. It hashes the keys of rows in batches, and the keys of columns as a column."""

from __future__ import annotations

from decimal import Decimal
from itertools import compress
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa

from penstock.graph.job_graph import ExchangeSpec
from penstock.records.batch import Batch, ColumnBatch
from penstock.records.fields import Field
from penstock.state.key_groups import column_key_groups, keys_key_groups, subtask_for_key_group
from penstock.taskmanager.exchange.key_sketch import KeySketch
from penstock.taskmanager.exchange.single_target import SingleTargetWriter
from penstock.taskmanager.exchange.writer import Emit, ExchangeWriter
from penstock.taskmanager.operators.user_code import raise_user_error, refuse_key, select_keys
from penstock.taskmanager.protocol import KeyCounts

_TARGETS_BY_MASK = 8


_MAX_CACHED_KEYS = 1 << 17


_MIN_KEYS_TO_HASH = 1000


_BATCHES_TO_HASH = 64
"""Number of batches after a batch with mostly new keys. All keys of these batches are hashed."""


class OneKeyedTargetWriter(SingleTargetWriter):
    """A writer for key groups that all belong to one subtask. Every record goes there.

    It computes only the first key of a batch. Like the writer for several subtasks, it refuses a value that cannot be a
    key, even if no state uses the key. If the first key may contain NaN, it computes and checks all keys.
    """

    def __init__(self, spec: ExchangeSpec, sender: int, emit: Emit) -> None:
        super().__init__(spec, sender, emit, 0)
        selector = spec.partitioning.key_selector
        assert selector is not None
        self._selector = selector
        self._field = spec.partitioning.key_field
        self._kinds: set[type] = set()
        self._sketch = KeySketch(spec.max_parallelism)

    def take_key_counts(self) -> KeyCounts | None:
        return self._sketch.take()

    def write(self, batch: Batch) -> None:
        columns = self._as_columns(batch)
        if columns is None:
            self._check_rows(batch.rows().values)
        elif self._field is not None:
            self._check_columns(columns, self._field)
        self._sample(batch, columns)
        super().write(batch)

    def _sample(self, batch: Batch, columns: ColumnBatch | None) -> None:
        part = self._sketch.pick(len(batch))
        if part is None:
            return
        column = None if columns is None or self._field is None else columns.find(self._field)
        if column is not None:
            self._sketch.add_cells(column, part)
        elif columns is None:
            try:
                keys = list(map(self._selector, batch.rows().values[part]))
            except Exception:  # an operator after the exchange reports it, if it uses the key
                return
            self._sketch.add(keys)

    def _check_rows(self, values: list[Any]) -> None:
        first = values[:1]
        for key in select_keys(self.spec, self._selector, first):
            if type(key) not in self._kinds:
                refuse_key(self.spec, key, first[0])
                self._kinds.add(type(key))
            if _may_be_nan(key):
                self._check_nan(values)

    def _check_nan(self, values: list[Any]) -> None:
        for key, value in zip(select_keys(self.spec, self._selector, values), values, strict=True):
            if _contains_nan(key):
                refuse_key(self.spec, key, value)

    def _check_columns(self, batch: ColumnBatch, field: Field) -> None:
        column = batch.find(field)
        if column is None or not len(column):
            return
        if pa.types.is_nested(column.type):
            refuse_key(self.spec, column[0].as_py(), batch.rows().values[0])
        elif pa.types.is_floating(column.type):
            self._check_nan(batch.rows().values)


def _may_be_nan(key: Any) -> bool:
    return isinstance(key, float | Decimal | np.floating) or (isinstance(key, tuple) and any(map(_may_be_nan, key)))


def _contains_nan(key: Any) -> bool:
    return bool(key != key) or (isinstance(key, tuple) and any(map(_contains_nan, key)))


class KeyTargets:
    """A map of key -> target subtask, for many keys at once.

    It looks up known keys, and hashes new keys by column. A look-up in a large table costs more than hashing.
    So while most keys of a batch are new, it hashes all keys and keeps none.

    Args:
        targets: the subtask of every key group.
    """

    def __init__(self, targets: list[int]) -> None:
        self._max_parallelism = len(targets)
        self._targets_by_group = np.array(targets, np.int64)
        self._known: dict[Any, int] = {}
        self._batches_to_hash = 0

    def of(self, keys: list[Any]) -> list[int]:
        """Return the target of every key."""
        if self._batches_to_hash:
            self._batches_to_hash -= 1
            return self._hashed(keys)
        known = self._known
        found = list(map(known.get, keys))
        if None not in found:
            return cast("list[int]", found)
        fresh = list(dict.fromkeys(compress(keys, [target is None for target in found])))
        if len(fresh) > len(keys) // 2 and len(keys) >= _MIN_KEYS_TO_HASH:
            self._batches_to_hash = _BATCHES_TO_HASH
            return self._hashed(keys)
        if len(known) + len(fresh) > _MAX_CACHED_KEYS:
            known.clear()
            fresh = list(dict.fromkeys(keys))
        known.update(zip(fresh, self._hashed(fresh), strict=True))
        # A look-up of a tuple computes its hash again, so only the missing keys are looked up twice.
        return [known[key] if target is None else target for key, target in zip(keys, found, strict=True)]

    def _hashed(self, keys: list[Any]) -> list[int]:
        targets: list[int] = self._targets_by_group[keys_key_groups(keys, self._max_parallelism)].tolist()
        return targets


class KeyGroupWriter(ExchangeWriter):
    """A writer that maps key -> key group -> subtask. It hashes a columnar key once per distinct value."""

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
        self._sketch = KeySketch(groups)
        few = range(self._targets) if self._targets <= _TARGETS_BY_MASK else ()
        self._masks = [bytes(int(n == target) for n in range(256)) for target in few]

    def take_key_counts(self) -> KeyCounts | None:
        return self._sketch.take()

    def write(self, batch: Batch) -> None:
        columns = self._as_columns(batch)
        if columns is not None and self._field is not None:
            column = columns.find(self._field)
            if column is not None:
                self._write_columns(columns, column)
                return
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        keys = select_keys(self.spec, self._selector, values)
        try:
            chosen = self._key_targets.of(keys)
        except Exception as error:
            self._fail(error, keys, values)
        picked = self._sketch.pick(len(keys))
        if picked is not None:
            self._sketch.add(keys[picked])
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
        """Append the records per target. One pass in C per target is faster than a loop of appends if there are few targets."""
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
        part = self._sketch.pick(len(column))
        if part is not None:
            self._sketch.add_cells(column, part)
        for target in range(self._targets):
            indices = np.flatnonzero(targets == target)
            if not len(indices):
                continue
            self._append_columns(target, batch.take(indices))

    def _fail(self, error: Exception, keys: list[Any], values: list[Any]) -> NoReturn:
        """Raise for the value that cannot be a key.

        The keys were hashed together, so the wrong value must be found first.
        """
        for key, value in zip(keys, values, strict=True):
            refuse_key(self.spec, key, value)
        raise_user_error(self.spec, error, f"hashing the keys of a batch of {len(values)} records")
