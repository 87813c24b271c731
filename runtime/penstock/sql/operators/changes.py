"""Functions that correct the kinds of changes: of tables of upserts, and before sinks with a primary key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.expressions.compiler import compile_value
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
from penstock.sql.plan.changes import ChangelogNormalize
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.user_functions import functions_in
from penstock.state.descriptors import ValueStateDescriptor


def is_no_update_before(change: Change) -> bool:
    return change[0] != UPDATE_BEFORE


class ChangelogNormalizeFunction(KeyedProcessFunction):
    """The changes of the row of each key. An upsert becomes an insertion or an update, and a deletion gets the former row."""

    def __init__(self, node: ChangelogNormalize, zone: str, *, changelog: bool) -> None:
        self._node, self._zone, self._changelog = node, zone, changelog
        self._condition()

    def _condition(self) -> Callable[[SqlRow], Any] | None:
        return None if self._node.condition is None else compile_value(self._node.condition, self._zone)

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = self._node.ttl_ms or None
        self._state = runtime_context.get_state(ValueStateDescriptor("changelogNormalizeState", ttl=ttl))
        self._exists = self._condition()
        for function in functions_in(self._node.condition):
            function.open(runtime_context)
        self._identity = identity_of(self._node.output)

    def close(self) -> None:
        for function in functions_in(self._node.condition):
            function.close()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Change]:
        kind, row = value if self._changelog else (INSERT, value)
        former = self._state.value()
        if kind in RETRACTIONS or (self._exists is not None and self._exists(row) is not True):
            self._state.clear()
            return [] if former is None else [(DELETE, former)]
        self._state.update(row)
        if former is None:
            return [(INSERT, row)]
        if not self._node.ttl_ms and self._identity(former) == self._identity(row):
            return []
        before = [(UPDATE_BEFORE, former)] if self._node.generate_update_before else []
        return [*before, (UPDATE_AFTER, row)]


class UpsertMaterializeFunction(KeyedProcessFunction):
    """The current row of each primary key of a sink, if rows of several keys of the query have the same primary key.

    The state of a key is the list of its rows in the order of their arrival. The last row is the current one.

    Args:
        upsert_key: columns that identify a row of the query. Empty means all columns.
    """

    def __init__(
        self, columns: tuple[Column, ...], upsert_key: tuple[int, ...], ttl_ms: int, *, changelog: bool
    ) -> None:
        self._columns, self._upsert_key, self._ttl_ms, self._changelog = columns, upsert_key, ttl_ms, changelog

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("sinkMaterializeState", ttl=self._ttl_ms or None))
        self._identity = identity_of(self._columns, self._upsert_key or None)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Change]:
        kind, row = value if self._changelog else (INSERT, value)
        rows: list[SqlRow] = self._state.value() or []
        return self._removed(rows, row) if kind in RETRACTIONS else self._added(rows, row)

    def _added(self, rows: list[SqlRow], row: SqlRow) -> list[Change]:
        place = self._find(rows, row) if self._upsert_key else None
        kind = UPDATE_AFTER if rows else INSERT
        if place is None:
            self._state.update([*rows, row])
        else:
            self._state.update([*rows[:place], row, *rows[place + 1 :]])
        return [(kind, row)]

    def _removed(self, rows: list[SqlRow], row: SqlRow) -> list[Change]:
        place = self._find(rows, row)
        if place is None:
            return []
        removed, rest = rows[place], [*rows[:place], *rows[place + 1 :]]
        self._state.update(rest or None)
        if place < len(rest):
            return []
        return [(UPDATE_AFTER, rest[-1])] if rest else [(DELETE, removed)]

    def _find(self, rows: list[SqlRow], row: SqlRow) -> int | None:
        identity = self._identity(row)
        return next((place for place, kept in enumerate(rows) if self._identity(kept) == identity), None)
