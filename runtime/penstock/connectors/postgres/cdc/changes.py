"""Changes as a program gets them: `Row`s with a `RowKind`, or `Change`s with both images and where they stand in the log."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.common.errors import SourceError
from penstock.common.types import RowKind
from penstock.connectors.postgres.cdc.columns import TableValues
from penstock.connectors.postgres.cdc.messages import Values, lsn_text


class Change(NamedTuple):
    """What happened to a row. `kind`: "read" (it was there at the start), "insert", "update", "delete", or "truncate" of the table.

    `before` has what the table's REPLICA IDENTITY keeps: the key, if that changed or the row was deleted, or all (FULL), or None. `unchanged` names fields of
    `after` that are None because the log does not have them: large values that the update did not touch. Changes of a transaction come together, in order;
    `number` counts them from 1.
    """

    table: str
    kind: str
    before: Any
    after: Any
    unchanged: tuple[str, ...]
    lsn: str
    """Of the transaction's commit."""
    transaction: int
    number: int
    committed_at: int
    """ms."""


class Captured(NamedTuple):
    """A change before its values are records. `kind`: "read", "insert", "update", "delete", "truncate"."""

    table: TableValues
    kind: str
    old: Values | None
    new: Values | None
    has_whole_old: bool
    lsn: int
    transaction: int
    number: int
    committed_at: int


_DELETE, _INSERT = RowKind.DELETE, RowKind.INSERT
_BEFORE, _AFTER = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER


class ChangeRecords:
    """Makes the records of a source. Picklable.

    Args:
        output: "rows" or "changes".
        mode: of rows: "upsert", or "all", with the row as it was before an update.
        truncate: of rows: "fail" or "skip".
        unchanged: of rows: "fail" or "none", for values that the log does not have.
    """

    def __init__(self, output: str, mode: str, truncate: str, unchanged: str) -> None:
        self._is_rows = output == "rows"
        self._all = mode == "all"
        self._skips_truncate = truncate == "skip"
        self._takes_none = unchanged == "none"

    def of(self, captured: list[Captured]) -> tuple[list[Any], list[int]]:
        """The records, and their times.

        Raises:
            SourceError: a change has no place among rows.
        """
        wanted: dict[TableValues, list[tuple[Any, ...]]] = {}

        def later(table: TableValues, values: Values | None) -> tuple[TableValues, int] | None:
            if values is None:
                return None
            rows = wanted.setdefault(table, [])
            rows.append(table.load(values))
            return table, len(rows) - 1

        parts = self._rows if self._is_rows else self._changes
        found = [part for change in captured for part in parts(change, later)]
        made = {table: table.records(rows) for table, rows in wanted.items()}
        records: list[Any] = []
        times = []
        for change, kind, places in found:
            values: list[Any] = [None if place is None else made[place[0]][place[1]] for place in places]
            if kind is None:
                records.append(_change(change, *values))
            else:
                if kind is not _INSERT:
                    values[0].set_row_kind(kind)
                records.append(values[0])
            times.append(change.committed_at)
        return records, times

    def _changes(self, change: Captured, later: Any) -> list[Any]:
        return [(change, None, (later(change.table, change.old), later(change.table, change.new)))]

    def _rows(self, change: Captured, later: Any) -> list[Any]:
        table, kind = change.table, change.kind
        if kind == "truncate":
            if self._skips_truncate:
                return []
            raise SourceError(
                f"table {table.table.name!r} was truncated, which no row can say",
                remedy="set_truncate('skip'), or set_output('changes'), in which it is a change of its own",
            )
        if self._all and kind in ("update", "delete") and not change.has_whole_old:
            name = table.table.name
            raise SourceError(
                f"the log does not have a row of {name!r} as it was before its {kind}: its REPLICA IDENTITY was not FULL then",
                remedy=f"alter table {name} replica identity full (for changes from then on) and start without the state of this source, which "
                "reads all rows again; or set_changelog_mode('upsert')",
            )
        if kind == "delete":
            return [(change, _DELETE, (later(table, change.old),))]
        assert change.new is not None
        if kind == "update":
            self._check_whole(change)
            after = (change, _AFTER, (later(table, change.new),))
            if self._all:
                return [(change, _BEFORE, (later(table, change.old),)), after]
            if change.old is not None and table.key_of(change.old) != table.key_of(change.new):
                return [(change, _DELETE, (later(table, change.old),)), after]
            return [after]
        return [(change, _INSERT, (later(table, change.new),))]

    def _check_whole(self, change: Captured) -> None:
        assert change.new is not None
        missing = () if self._takes_none else change.table.unchanged_in(change.new)
        if missing:
            name = change.table.table.name
            raise SourceError(
                f"the log does not have {', '.join(map(repr, missing))} of a row of {name!r}: a large value (TOAST) that an update did not touch",
                remedy=f"alter table {name} replica identity full (for changes from then on); or set_unchanged_values('none'), or "
                "set_output('changes'), which names such fields",
            )


def _change(captured: Captured, before: Any, after: Any) -> Change:
    return Change(
        captured.table.table.name,
        captured.kind,
        before,
        after,
        () if captured.new is None else captured.table.unchanged_in(captured.new),
        lsn_text(captured.lsn),
        captured.transaction,
        captured.number,
        captured.committed_at,
    )
