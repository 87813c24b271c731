"""Joins without a limit of time. Each side keeps its rows, and a change of one side changes the results of all its partners."""

from __future__ import annotations

from typing import Any

from penstock.datastream.functions import KeyedCoProcessFunction, RuntimeContext
from penstock.sql.operators.joins.condition import (
    Matches,
    close_functions,
    condition_of,
    null_keys,
    open_functions,
)
from penstock.sql.operators.joins.sides import Entry, Side, unique_columns
from penstock.sql.operators.rows import DELETE, INSERT, RETRACTIONS, Change, SqlRow
from penstock.sql.plan.joins import RegularJoin

_STATES = ("left-records", "right-records")


class TwoSides(KeyedCoProcessFunction):
    """The base of joins that keep the rows of both sides.

    The state of a side is a map with an entry for each row. A row with a NULL key has no partner and is not kept.

    Args:
        changelogs: for each input, whether its records are changes.
        counts: for each side, whether its entries have the number of their partners.
    """

    def __init__(self, node: RegularJoin, zone: str, changelogs: tuple[bool, bool], counts: tuple[bool, bool]) -> None:
        spec = node.spec
        self._spec, self._zone, self._changelogs = spec, zone, changelogs
        self._nulls = null_keys(spec)
        self._sides = tuple(
            Side(
                name,
                spec.columns[i],
                unique_columns(spec.keys[i], node.upsert_keys[i]),
                node.ttls_ms[i],
                counts=counts[i],
            )
            for i, name in enumerate(_STATES)
        )
        condition_of(spec, zone)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._matches: Matches | None = condition_of(self._spec, self._zone)
        open_functions(self._spec, runtime_context)
        for side in self._sides:
            side.open(runtime_context)

    def close(self) -> None:
        close_functions(self._spec)

    def _partners(self, row: SqlRow, side: int) -> list[Entry]:
        """Return the entries of the other side that match a row of this side."""
        entries = self._sides[1 - side].entries()
        return entries if self._matches is None else [entry for entry in entries if self._match(row, entry, side)]

    def _match(self, row: SqlRow, entry: Entry, side: int) -> bool:
        assert self._matches is not None
        return self._matches(entry[0], row) if side else self._matches(row, entry[0])

    def _has_null_key(self, row: SqlRow, side: int) -> bool:
        return any(row[index] is None for index in self._nulls[side])

    def _replaced(self, row: SqlRow, former: SqlRow, side: int) -> tuple[list[Entry], list[Entry]]:
        """Return the partners that a row has and the former row did not have, and the partners that only the former row had."""
        if self._matches is None:
            return [], []
        gained, lost = [], []
        for entry in self._sides[1 - side].entries():
            is_new, was_old = self._match(row, entry, side), self._match(former, entry, side)
            if is_new and not was_old:
                gained.append(entry)
            elif was_old and not is_new:
                lost.append(entry)
        return gained, lost


class RegularJoinFunction(TwoSides):
    """An inner or outer join. An inner join of insert-only tables has rows, all others have changes."""

    def __init__(self, node: RegularJoin, zone: str, changelogs: tuple[bool, bool]) -> None:
        self._outer = left, right = node.spec.outer
        super().__init__(node, zone, changelogs, (left, right))
        self.is_changelog = left or right or any(changelogs)
        self._padding = tuple((None,) * len(columns) for columns in node.spec.columns)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[Any] | None:
        return self._changes(value, 0) if self.is_changelog else self._rows(value, 0)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[Any] | None:
        return self._changes(value, 1) if self.is_changelog else self._rows(value, 1)

    def _rows(self, row: SqlRow, side: int) -> list[SqlRow] | None:
        if self._has_null_key(row, side):
            return None
        self._sides[side].add(row)
        partners = self._partners(row, side)
        return [self._pair(row, entry[0], side) for entry in partners for _ in range(entry[2])]

    def _pair(self, row: SqlRow, partner: SqlRow, side: int) -> SqlRow:
        return partner + row if side else row + partner

    def _padded(self, row: SqlRow, side: int) -> SqlRow:
        return self._padding[0] + row if side else row + self._padding[1]

    def _changes(self, value: Any, side: int) -> list[Change] | None:
        kind, row = value if self._changelogs[side] else (INSERT, value)
        if self._has_null_key(row, side):
            if not self._outer[side]:
                return None
            return [(DELETE if kind in RETRACTIONS else INSERT, self._padded(row, side))]
        return self._removed(kind, row, side) if kind in RETRACTIONS else self._added(kind, row, side)

    def _added(self, kind: int, row: SqlRow, side: int) -> list[Change]:
        partners = self._partners(row, side)
        former = self._sides[side].add(row, sum(entry[2] for entry in partners))
        if not partners and self._outer[side]:
            out = [(INSERT, self._padded(row, side))]
        else:
            out_kind = INSERT if any(self._outer) else kind
            out = [(out_kind, self._pair(row, entry[0], side)) for entry in partners for _ in range(entry[2])]
        if not self._outer[1 - side]:
            return out
        if former is None:
            return self._gained(partners, side) + out
        gained, lost = self._replaced(row, former, side)
        return self._gained(gained, side) + out + self._lost(lost, side)

    def _removed(self, kind: int, row: SqlRow, side: int) -> list[Change]:
        self._sides[side].remove(row)
        partners = self._partners(row, side)
        if not partners and self._outer[side]:
            return [(DELETE, self._padded(row, side))]
        out_kind = DELETE if any(self._outer) else kind
        out = [(out_kind, self._pair(row, entry[0], side)) for entry in partners for _ in range(entry[2])]
        return out + self._lost(partners, side) if self._outer[1 - side] else out

    def _gained(self, partners: list[Entry], side: int) -> list[Change]:
        """Count one more partner of these entries. Return the deletion of the results that they had without a partner."""
        other, out = self._sides[1 - side], []
        for entry in partners:
            if entry[1] == 0:
                out += [(DELETE, self._padded(entry[0], 1 - side))] * entry[2]
            other.set_partners(entry, entry[1] + 1)
        return out

    def _lost(self, partners: list[Entry], side: int) -> list[Change]:
        """Count one partner less. Return the results of entries that have no partner now."""
        other, out = self._sides[1 - side], []
        for entry in partners:
            if entry[1] == 1:
                out += [(INSERT, self._padded(entry[0], 1 - side))] * entry[2]
            other.set_partners(entry, max(entry[1] - 1, 0))
        return out


class SemiJoinFunction(TwoSides):
    """The left rows that have a partner (SEMI), or that have none (ANTI)."""

    def __init__(self, node: RegularJoin, zone: str, changelogs: tuple[bool, bool]) -> None:
        super().__init__(node, zone, changelogs, (True, False))
        self._is_anti = node.spec.kind == "ANTI"
        self.is_changelog = self._is_anti or any(changelogs)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[Any] | None:
        kind, row = value if self._changelogs[0] else (INSERT, value)
        if self._has_null_key(row, 0):
            return self._out([(kind, row)]) if self._is_anti else None
        partners = self._partners(row, 0)
        if kind in RETRACTIONS:
            self._sides[0].remove(row)
        else:
            self._sides[0].add(row, sum(entry[2] for entry in partners))
        return self._out([(kind, row)]) if bool(partners) != self._is_anti else None

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> list[Any] | None:
        kind, row = value if self._changelogs[1] else (INSERT, value)
        if self._has_null_key(row, 1):
            return None
        if kind in RETRACTIONS:
            self._sides[1].remove(row)
            return self._out(self._changed(self._partners(row, 1), -1))
        former = self._sides[1].add(row)
        if former is None:
            return self._out(self._changed(self._partners(row, 1), 1))
        gained, lost = self._replaced(row, former, 1)
        return self._out(self._changed(gained, 1) + self._changed(lost, -1))

    def _changed(self, entries: list[Entry], change: int) -> list[Change]:
        """Change the number of partners of left rows. Return the changes of rows that got their first partner or lost their last one."""
        left, out = self._sides[0], []
        for entry in entries:
            partners = max(entry[1] + change, 0)
            if bool(partners) != bool(entry[1]):
                kind = INSERT if bool(partners) != self._is_anti else DELETE
                out += [(kind, entry[0])] * entry[2]
            left.set_partners(entry, partners)
        return out

    def _out(self, changes: list[Change]) -> list[Any]:
        return changes if self.is_changelog else [row for _, row in changes]
