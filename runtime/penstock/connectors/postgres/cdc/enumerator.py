"""The enumerator of `PostgresCdcSource`. It creates the slot, and assigns first the ranges of rows and last the stream of changes.

Each step starts when the previous step is complete.
"""

from __future__ import annotations

import copy
import logging
import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.source import Split, SplitEnumerator
from penstock.connectors.postgres.cdc.messages import lsn_of, lsn_text
from penstock.connectors.postgres.cdc.server_facts import FoundTable, create_publication, look, slot_of
from penstock.connectors.postgres.client import package, quoted
from penstock.connectors.simple.sequence import ranges

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

logger = logging.getLogger(__name__)

CHANGES = "changes"
LOOK_MS = 200
_SLOT_WAITS_MS = 60_000
_QUIET_S = 10.0
_ROWS_OF_RANGE = 1_000_000


class CdcEnumerator(SplitEnumerator):
    """Enumerator of the row ranges and the stream of changes.

    Its state is None before the first start. Afterwards, the state's "phase" is "waiting", "rows" or "changes".
    """

    forgets_finished = True

    def __init__(self, source: CdcSettings) -> None:
        self._source = source
        self._state: dict[str, Any] | None = None
        self._waits_since = 0.0

    @property
    def discovery_interval_ms(self) -> int | None:  # type: ignore[override]
        return None if self._state is not None and self._state["phase"] == CHANGES else LOOK_MS

    def discover(self) -> list[Split]:
        source = self._source
        if self._state is None:
            with source.server.connect(SourceError, autocommit=True) as connection:
                tables = look(connection, source)
                self._state = self._begin(connection, tables)
        state = self._state
        if state["phase"] == "waiting":
            with source.server.connect(SourceError, autocommit=True) as connection:
                if not self._all_seen(connection):
                    return []
                tables = look(connection, source)
                splits = [split for table in tables for split in self._ranges(connection, table)]
            state["open"] = [split.id for split in splits]
            state["phase"] = "rows"
            return splits
        if state["phase"] == "rows" and not state["open"]:
            state["phase"] = CHANGES
            return [self._changes()]
        return []

    def _begin(self, connection: Any, tables: list[FoundTable]) -> dict[str, Any]:
        source = self._source
        if source.creates_publication:
            self._create_publication(connection)
        at = connection.execute("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint").fetchone()[0]
        slot = slot_of(connection, source.slot)
        lsn = self._create_slot(connection) if slot is None else str(slot.confirmed)
        # This id is above the ids of all running transactions.
        behind = connection.execute("select pg_current_xact_id()::text").fetchone()[0]
        captured = {table.id: list(table.captured) for table in tables}
        phase = "waiting" if source.reads_rows else "rows"
        return {
            "phase": phase,
            "lsn": lsn,
            "at": at,
            "behind": int(behind),
            "tables": captured,
            "ranges": {table.id: [] for table in tables},
            "until": "0/0",
            "open": [],
        }

    def _create_publication(self, connection: Any) -> None:
        source = self._source
        try:
            connection.execute(create_publication(source))
        except package("psycopg.errors").DuplicateObject:
            return
        except package().Error as error:
            raise source.server.explained(
                SourceError, f"publication {source.publication!r} cannot be created", error
            ) from error

    def _create_slot(self, connection: Any) -> str:
        source, errors = self._source, package("psycopg.errors")
        try:
            connection.execute(f"set statement_timeout = {_SLOT_WAITS_MS}")
            created = connection.execute(
                "select lsn::text from pg_create_logical_replication_slot(%s, 'pgoutput')", [source.slot]
            )
            return str(created.fetchone()[0])
        except errors.QueryCanceled as error:
            raise SourceError(
                f"{source.server.shown}: replication slot {source.slot!r} was not created within {_SLOT_WAITS_MS // 1000} s, because the server "
                "waits for older transactions to end",
                remedy="end them: select pid, xact_start, query from pg_stat_activity where xact_start is not null order by xact_start",
            ) from error
        except package().Error as error:
            raise source.server.explained(
                SourceError, f"replication slot {source.slot!r} cannot be created", error
            ) from error
        finally:
            if not connection.closed:
                connection.execute("set statement_timeout = 0")

    def _all_seen(self, connection: Any) -> bool:
        """Return whether all transactions that were running at the creation of the slot have ended.

        The log contains a commit some time before snapshots see it. Without this wait, a transaction could be missing in the slot's log and
        also in a snapshot.
        """
        assert self._state is not None
        oldest = int(connection.execute("select pg_snapshot_xmin(pg_current_snapshot())::text").fetchone()[0])
        if oldest >= self._state["behind"]:
            return True
        now = time.monotonic()
        if now - self._waits_since > _QUIET_S:
            if self._waits_since:
                logger.warning(
                    "changes of %s: waiting for transactions that began before the slot, the oldest is %d",
                    self._source.server.shown,
                    oldest,
                )
            self._waits_since = now
        return False

    def _ranges(self, connection: Any, table: FoundTable) -> list[Split]:
        """Return the ranges of an integer key in ascending order. A key of another type has one range."""
        bounds: list[tuple[Any, Any]] = [(None, None)]
        if table.captured.has_integer_key:
            key = quoted(table.captured.key[0])
            least, most = connection.execute(f"select min({key}), max({key}) from {table.sql}").fetchone()
            if least is not None:
                parts = self._source.splits or max(1, self.parallelism, table.size // _ROWS_OF_RANGE)
                lows = [low - 1 for low, _ in ranges(least, most + 1, parts)][1:]
                bounds = list(zip([None, *lows], [*lows, None], strict=True))
        return [
            Split(
                f"{table.id}:{'' if low is None else low}-{'' if high is None else high}",
                {
                    "table": table.id,
                    "captured": list(table.captured),
                    "filter": table.filter,
                    "low": low,
                    "high": high,
                    "at": self._at,
                },
                max(1, table.size // len(bounds)),
            )
            for low, high in bounds
        ]

    @property
    def _at(self) -> int:
        assert self._state is not None
        return int(self._state["at"])

    def on_split_ended(self, split: Split, position: Any) -> None:
        if self._state is None or split.id not in self._state["open"]:
            return
        self._state["open"].remove(split.id)
        about = split.properties
        self._state["ranges"][about["table"]].append([about["low"], about["high"], position["parts"]])
        self._state["until"] = lsn_text(max(lsn_of(self._state["until"]), lsn_of(position["lsn"])))

    def _changes(self) -> Split:
        assert self._state is not None
        state = self._state
        tables = {
            name: {"captured": captured, "ranges": state["ranges"][name]} for name, captured in state["tables"].items()
        }
        state["ranges"] = {}
        return Split(CHANGES, {"lsn": state["lsn"], "until": state["until"], "tables": tables})

    def snapshot(self) -> Any:
        return copy.deepcopy(self._state)

    def restore(self, state: Any) -> None:
        """Restore the state.

        Raises:
            InvalidJob: the source has tables that it did not have at its first start. It would not read the rows of these tables.
        """
        self._state = state
        if state is None:
            return
        first_tables = {captured[0] for captured in state["tables"].values()}
        added = [name for name in self._source.tables if name not in first_tables]
        gone = [name for name in first_tables if name not in self._source.tables] if state["phase"] != CHANGES else []
        if added or gone:
            raise InvalidJob(
                f"the first start of this source on {self._source.server.shown} had the tables {', '.join(sorted(first_tables))}. "
                f"These were added or removed: {', '.join(added + gone)}",
                remedy="read new tables with another source and slot, and remove tables only after all rows are read. "
                "Or start without the state of this source, which then reads all rows again",
            )
