"""The stream of changes after a position in the log. It skips changes that the rows of the initial read already contain."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PlatformError, SourceError
from penstock.connectors.core.source import ReadBounds, Split, SplitReader
from penstock.connectors.postgres.cdc.changes import Captured
from penstock.connectors.postgres.cdc.columns import CapturedTable, TableValues
from penstock.connectors.postgres.cdc.messages import (
    Begin,
    Commit,
    Keepalive,
    Relation,
    RowChange,
    Truncate,
    log_end,
    lsn_of,
    lsn_text,
    parse,
)
from penstock.connectors.postgres.cdc.replication import ReplicationLink, SlotBusy
from penstock.connectors.postgres.cdc.visibility import ReadRows
from penstock.connectors.postgres.cdc.watched_tables import WatchedTables
from penstock.connectors.postgres.client import is_lost, package
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LONGEST_READ_S = 0.05
"""Maximum time of one read in seconds.

Long parts of the log may produce no records, because their changes were read before or belong to other tables.
"""
_NAMES = {"I": "insert", "U": "update", "D": "delete"}


class ChangesReader(SplitReader):
    """Reader of the stream of changes. The position of the reader has:

    - `lsn`: the end of the last transaction that was read completely, or the end of the log if nothing followed this transaction,
    - `commit` and `number`, if the next transaction was read in part: its commit, and the number of its changes that were read,
    - `system` and `timeline`: the server to which the log belongs,
    - `oids`: the OIDs of the tables.
    """

    moves_without_records = True

    def __init__(self, source: CdcSettings, split: Split, position: Any, who: str) -> None:
        self._source = source
        self._who = who
        about = split.properties
        self._until = lsn_of(about["until"])
        self._captured = {name: CapturedTable.of(table["captured"]) for name, table in about["tables"].items()}
        self._read_rows = {name: ReadRows.of(table["ranges"]) for name, table in about["tables"].items()}
        position = position or {"lsn": about["lsn"], "commit": None, "number": 0, "system": None}
        names = [name for name, captured in self._captured.items() if captured.name in source.tables]
        self._watched = WatchedTables(source, names, position.get("oids", {}))
        self._lsn = lsn_of(position["lsn"])
        self._commit: str | None = position["commit"]
        self._delivered: int = position["number"]
        self._number = 0
        self._system: str | None = position["system"]
        self._timeline: int | None = position.get("timeline")
        self._confirmed = self._lsn
        self._end = self._lsn
        self._link: ReplicationLink | None = None
        self._tables: dict[int, tuple[TableValues, ReadRows] | None] = {}
        self._transaction: Begin | None = None
        self._has_more = False
        self._reported_at = 0.0
        self._connected_at: float | None = None
        self._failing_since: float | None = None
        self._failing_at = (0, 0)
        self._try_at = 0.0
        self._pause = _PAUSE_S

    @property
    def position(self) -> Any:
        return {
            "lsn": lsn_text(self._lsn),
            "commit": self._commit,
            "number": self._delivered,
            "system": self._system,
            "timeline": self._timeline,
            "oids": dict(self._watched.oids),
        }

    @property
    def finished(self) -> bool:
        return False

    @property
    def lsn(self) -> int:
        """Return the LSN from which this position needs the log."""
        return self._lsn

    def lag(self) -> int | None:
        """Return the number of bytes of the log that were not read yet."""
        return max(0, self._end - self._lsn)

    def next_record_at(self) -> int | None:
        return int(time.time() * 1000) if self._has_more else None

    def is_caught_up(self) -> bool:
        return not self._has_more

    def confirm(self, lsn: int) -> None:
        """Store the position of a completed checkpoint. The next heartbeat reports it to the server."""
        self._confirmed = max(self._confirmed, lsn)
        self._reported_at = 0.0

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        found: list[Captured] = []
        self._has_more = False
        try:
            if self._link is None and not self._connect():
                return None
            assert self._link is not None
            self._tell()
            self._watched.look_now_and_then()
            until = time.monotonic() + _LONGEST_READ_S
            while len(found) < bounds.max_records:
                data = self._link.receive()
                if data is None:
                    break
                self._end = max(self._end, log_end(data))
                self._take(data, found)
                if time.monotonic() > until:
                    self._has_more = True
                    break
        except package().Error as error:
            self._lost(error)
        if not found:
            return None
        records, times = self._source.records.of(found)
        return RowBatch(records, times) if records else None

    def _connect(self) -> bool:
        if time.monotonic() < self._try_at:
            return False
        self._tables, self._transaction = {}, None
        try:
            self._watched.look()
            self._link = ReplicationLink(self._source, self._lsn, self._who, self._system, self._timeline)
        except SlotBusy as error:
            busy = SourceError(
                str(error),
                remedy="only one job can use a slot: end the other reader, or call set_slot_name('…') with another name",
            )
            self._wait(busy)
            return False
        except SourceError as error:
            if error.__cause__ is None or not _may_pass(error.__cause__):
                raise
            self._wait(error)
            return False
        self._system, self._timeline = self._link.system, self._link.timeline
        self._reported_at = 0.0
        self._connected_at = time.monotonic()
        return True

    def _lost(self, error: Exception) -> None:
        logger.warning("changes of %s: %s", self._source.server.shown, " ".join(str(error).split()))
        self.close()
        explained = self._source.server.explained(SourceError, "changes cannot be read", error)
        if not _may_pass(error):
            raise explained from error
        connected_at, self._connected_at = self._connected_at, None
        if connected_at is not None and time.monotonic() - connected_at > PATIENCE_S:
            self._failing_since = None
        self._wait(explained)

    def _wait(self, error: PlatformError) -> None:
        """Schedule the next attempt to connect, or raise the error if the position has not advanced for `PATIENCE_S`.

        A successful connection does not count as progress: the server may accept the connection and fail at the next
        change.
        """
        now = time.monotonic()
        reached = (self._lsn, self._delivered)
        if self._failing_since is None or reached > self._failing_at:
            self._failing_since, self._failing_at, self._pause = now, reached, _PAUSE_S
        if now - self._failing_since > PATIENCE_S:
            raise error
        self._try_at = now + self._pause
        self._pause = min(_LONGEST_PAUSE_S, self._pause * 2)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._reported_at > self._source.heartbeat_ms / 1000:
            assert self._link is not None
            self._link.tell(self._confirmed, asks=True)
            self._reported_at = now

    def _take(self, data: bytes, found: list[Captured]) -> None:
        message = parse(data)
        if isinstance(message, RowChange):
            if self._counts():
                self._take_change(message, found)
        elif isinstance(message, Begin):
            self._transaction = message
            commit = lsn_text(message.commit_lsn)
            if commit != self._commit:
                self._commit, self._delivered = commit, 0
            self._number = 0
        elif isinstance(message, Commit):
            self._lsn, self._commit, self._delivered, self._transaction = message.end_lsn, None, 0, None
        elif isinstance(message, Relation):
            self._tables[message.oid] = self._table(message)
        elif isinstance(message, Truncate):
            if self._counts():
                for oid in message.oids:
                    self._take_truncate(oid, found)
        elif isinstance(message, Keepalive):
            if self._transaction is None:
                self._lsn = max(self._lsn, message.lsn)
            if message.asks:
                self._reported_at = 0.0

    def _counts(self) -> bool:
        """Count a change of the transaction, and return whether the change is new.

        After a reconnect, the server sends the changes of the transaction again. The position does not move until a new change arrives.
        """
        self._number += 1
        if self._number <= self._delivered:
            return False
        self._delivered = self._number
        return True

    def _table(self, relation: Relation) -> tuple[TableValues, ReadRows] | None:
        captured = self._captured.get(relation.name)
        source = self._source
        self._watched.check(relation)
        if captured is None or captured.name not in source.tables:
            return None
        columns = [(column.name, column.type) for column in relation.columns]
        shape = source.tables[captured.name]
        values = TableValues(captured, columns, shape, form=source.form, follows=source.follows)
        return values, self._read_rows[relation.name]

    @property
    def _may_be_seen(self) -> bool:
        assert self._transaction is not None
        return self._transaction.commit_lsn <= self._until

    def _take_change(self, change: RowChange, found: list[Captured]) -> None:
        known = self._tables[change.oid]
        if known is None:
            return
        table, read = known
        kind, old, new = _NAMES[change.kind], change.old, change.new
        if old is not None and new is not None:
            new = table.filled(old, new, whole=change.whole)
        if self._may_be_seen:
            assert self._transaction is not None
            xid = self._transaction.xid
            key = None if new is None else table.key_of(new)
            before = key if old is None else table.key_of(old)
            saw_old = kind != "insert" and read.saw(xid, before)
            saw_new = kind != "delete" and read.saw(xid, key)
            if kind == "update" and saw_old != saw_new:  # the update moved the key from one range to another
                kind, old, new = ("insert", None, new) if saw_old else ("delete", old, None)
            elif saw_old or saw_new:
                return
        self._add(found, table, kind, old, new, whole=change.whole)

    def _take_truncate(self, oid: int, found: list[Captured]) -> None:
        known = self._tables[oid]
        if known is None:
            return
        table, read = known
        assert self._transaction is not None
        seen = read.saw_everywhere(self._transaction.xid) if self._may_be_seen else False
        if seen is None:
            raise SourceError(
                f"table {table.table.name!r} was truncated while the source read its rows for the first time",
                remedy="start the job without the state of this source: it reads all rows again",
            )
        if not seen:
            self._add(found, table, "truncate", None, None, whole=False)

    def _add(self, found: list[Captured], table: TableValues, kind: str, old: Any, new: Any, *, whole: bool) -> None:
        at = self._transaction
        assert at is not None
        found.append(Captured(table, kind, old, new, whole, at.commit_lsn, at.xid, self._number, at.commit_ms))

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed, because the server was lost, busy or had an internal error."""
    return isinstance(error, Exception) and (is_lost(error) or isinstance(error, package().InternalError))
