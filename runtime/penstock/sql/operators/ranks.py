"""Top-N and deduplication: the first rows of each key in an order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cmp_to_key
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.rows import (
    DELETE,
    INSERT,
    RETRACTIONS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Change,
    SqlRow,
    identity_of,
)
from penstock.sql.plan.nodes import Deduplicate, Rank, SortField
from penstock.state.descriptors import ValueStateDescriptor


def sort_key(order: tuple[SortField, ...]) -> Callable[[SqlRow], Any]:
    """Return a function from a row to its key in this order.

    >>> key = sort_key((SortField(0, ascending=False, nulls_last=True),))
    >>> sorted([(1,), (None,), (3,)], key=key)
    [(3,), (1,), (None,)]

    NaN is equal to NaN and greater than all other numbers, as in Java.
    """

    def compare(left: SqlRow, right: SqlRow) -> int:
        for field in order:
            one, other = left[field.index], right[field.index]
            if one == other:
                continue
            if one is None or other is None:
                return 1 if (one is None) == field.nulls_last else -1
            is_number, is_other_number = one == one, other == other
            if not is_number and not is_other_number:
                continue
            is_less = one < other if is_number and is_other_number else is_number
            return -1 if is_less == field.ascending else 1
        return 0

    return cmp_to_key(compare)


class RankFunction(KeyedProcessFunction):
    """The changes of the first rows of each partition.

    The state of a key is the list of its rows in order. It is cut after the last rank if no row can be retracted.
    """

    def __init__(self, node: Rank, *, changelog: bool) -> None:
        self._node = node
        self._changelog = changelog

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = self._node.ttl_ms or None
        self._state = runtime_context.get_state(ValueStateDescriptor("rankState", ttl=ttl))
        self._key = sort_key(self._node.order)
        self._identity = identity_of(self._node.output)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Change]:
        kind, row = value if self._changelog else (INSERT, value)
        rows: list[SqlRow] = self._state.value() or []
        before = self._ranked(rows)
        if kind in RETRACTIONS:
            self._remove(rows, row)
        else:
            if self._node.unique_key:
                self._replace(rows, row)
            rows.insert(bisect_right(rows, self._key(row), key=self._key), row)
            if not self._changelog:
                del rows[self._node.last :]
        self._state.update(rows or None)
        yield from self._changes(before, self._ranked(rows))

    def _ranked(self, rows: list[SqlRow]) -> list[SqlRow]:
        return rows[self._node.first - 1 : self._node.last]

    def _remove(self, rows: list[SqlRow], row: SqlRow) -> None:
        key = self._key(row)
        identity = self._identity(row)
        for index in range(bisect_left(rows, key, key=self._key), bisect_right(rows, key, key=self._key)):
            if self._identity(rows[index]) == identity:
                del rows[index]
                return

    def _replace(self, rows: list[SqlRow], row: SqlRow) -> None:
        """Remove the former row with the same unique key."""
        unique = self._node.unique_key
        for index, former in enumerate(rows):
            if all(former[column] == row[column] for column in unique):
                del rows[index]
                return

    def _changes(self, before: list[SqlRow], after: list[SqlRow]) -> Iterator[Change]:
        if not self._node.output_row_number:
            left = list(after)
            for row in before:
                if row in left:
                    left.remove(row)
                else:
                    yield DELETE, row
            for row in left:
                yield INSERT, row
            return
        for index in range(max(len(before), len(after))):
            number = (self._node.first + index,)
            old = before[index] + number if index < len(before) else None
            new = after[index] + number if index < len(after) else None
            if old == new:
                continue
            if old is None:
                yield INSERT, new or ()
            elif new is None:
                yield DELETE, old
            else:
                if self._node.generate_update_before:
                    yield UPDATE_BEFORE, old
                yield UPDATE_AFTER, new


class DeduplicateFunction(KeyedProcessFunction):
    """The first or the last row of each key, by event time or by arrival.

    A first row by event time is known when the watermark reaches its time. All other results are updated by later rows.
    """

    def __init__(self, node: Deduplicate) -> None:
        self._node = node

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = self._node.ttl_ms or None
        self._state = runtime_context.get_state(ValueStateDescriptor("deduplicateState", ttl=ttl))
        """The row, or True after the row was emitted for good."""

    def process_element(self, value: SqlRow, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        node, former = self._node, self._state.value()
        if node.insert_only:
            yield from self._first(value, former, ctx)
            return
        if former is not None and not self._replaces(former, value):
            return
        self._state.update(value)
        if former is None:
            yield INSERT, value
        else:
            if node.generate_update_before:
                yield UPDATE_BEFORE, former
            yield UPDATE_AFTER, value

    def _first(self, row: SqlRow, former: Any, ctx: KeyedProcessFunction.Context) -> Iterator[SqlRow]:
        if former is True:
            return
        if self._node.rowtime is None:
            self._state.update(True)
            yield row
            return
        time = row[self._node.rowtime] // 1000
        if time <= ctx.timer_service().current_watermark():
            return
        if former is None or row[self._node.rowtime] < former[self._node.rowtime]:
            self._state.update(row)
            ctx.timer_service().register_event_time_timer(time)

    def _replaces(self, former: SqlRow, row: SqlRow) -> bool:
        rowtime = self._node.rowtime
        if rowtime is None:
            return True
        return bool(row[rowtime] >= former[rowtime] if self._node.keep_last else row[rowtime] < former[rowtime])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[SqlRow]:
        former = self._state.value()
        if former is not None and former is not True:
            self._state.update(True)
            yield former
