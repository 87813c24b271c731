"""Changes as records: `Row`s with a `RowKind`, or `Change`s. A `Change` has the row before and after the change, and a
position in the log."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.common.errors import SourceError
from penstock.common.types import RowKind
from penstock.connectors.postgres.cdc.columns import TableValues
from penstock.connectors.postgres.cdc.messages import Values, lsn_text


class Change(NamedTuple):
    """A change of a row. The changes of a transaction arrive together, in order."""

    table: str
    kind: str
    """ "read" (the row existed at the start), "insert", "update", "delete", or "truncate" of the table."""
    before: Any
    """The row before the change, with the fields that the table's REPLICA IDENTITY keeps.

    FULL keeps all fields. Otherwise, if the key changed or the row was deleted, this has only the fields of the key. In all other cases
    this is None.
    """
    after: Any
    unchanged: tuple[str, ...]
    """Fields of `after` that are None because the log omits large values that the update did not touch."""
    lsn: str
    """Position in the log (LSN) of the transaction's commit."""
    transaction: int
    number: int
    """Number of the change within its transaction, from 1."""
    committed_at: int
    """Time of the commit in ms."""


class Captured(NamedTuple):
    """A change before its values become records. `kind` is "read", "insert", "update", "delete" or "truncate"."""

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
    """Converter of changes to the records of a source. It is picklable.

    Args:
        output: "rows" or "changes".
        mode: for rows: "upsert", or "all", which includes the row before an update.
        truncate: for rows: "fail" or "skip".
        unchanged: for rows: "fail" or "none", for values that the log omits.
    """

    def __init__(self, output: str, mode: str, truncate: str, unchanged: str) -> None:
        self._is_rows = output == "rows"
        self._all = mode == "all"
        self._skips_truncate = truncate == "skip"
        self._takes_none = unchanged == "none"

    def of(self, captured: list[Captured]) -> tuple[list[Any], list[int]]:
        """Return the records and their timestamps.

        Raises:
            SourceError: a row cannot represent a change.
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
        records_by_table = {table: table.records(rows) for table, rows in wanted.items()}
        records: list[Any] = []
        times = []
        for change, kind, places in found:
            values: list[Any] = [None if place is None else records_by_table[place[0]][place[1]] for place in places]
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
                f"table {table.table.name!r} was truncated, which a row cannot represent",
                remedy="call set_truncate('skip'), or set_output('changes'), which has a separate change for it",
            )
        if self._all and kind in ("update", "delete") and not change.has_whole_old:
            name = table.table.name
            raise SourceError(
                f"the log does not have a row of {name!r} as it was before its {kind}: its REPLICA IDENTITY was not FULL then",
                remedy=f"alter table {name} replica identity full (for later changes) and start without the state of this source, "
                "which then reads all rows again. Or call set_changelog_mode('upsert')",
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
                f"the log does not have {', '.join(map(repr, missing))} of a row of {name!r}: it omits large values (TOAST) that an update did not touch",
                remedy=f"alter table {name} replica identity full (for later changes); or call set_unchanged_values('none'), or "
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
