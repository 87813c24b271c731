"""`PostgresCdcSource`: reads the rows of tables, and then their changes.

A builder creates it:

    changes = PostgresCdcSource.builder().set_conninfo("postgresql://job@db/shop").set_table("orders", {"id": int, "total": float})
    changes = changes.set_publication("penstock").set_slot_name("orders_job").build()
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.core.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator, SplitReader
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.postgres.cdc.changes import Change
from penstock.connectors.postgres.cdc.enumerator import CHANGES, CdcEnumerator
from penstock.connectors.postgres.cdc.row_ranges import RowRangeReader
from penstock.connectors.postgres.cdc.server_facts import look
from penstock.connectors.postgres.cdc.settings import CHOICES, CdcSettings
from penstock.connectors.postgres.cdc.stream import ChangesReader
from penstock.connectors.postgres.client import Server, package

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class PostgresCdcSource(CdcSettings, Source):
    """Source of the rows and changes of tables. `builder()` creates it.

    Args:
        tables: shapes by table; None means all columns.
        choices: see the builder's methods. The default of each choice is its first value in `CHOICES`.
    """

    bounded = False
    needs_last_positions = True
    counts_lag_in_records = False

    @staticmethod
    def builder() -> PostgresCdcSourceBuilder:
        """Return a builder.

        >>> builder = PostgresCdcSource.builder().set_conninfo("postgresql://job@db/shop").set_slot_name("orders_job")
        >>> builder.set_table("orders", {"id": int, "total": float}).build().bounded
        False
        """
        return PostgresCdcSourceBuilder()

    @property
    def sole_use(self) -> str | None:
        return f"replication slot {self.slot!r} of {self.server.shown}"

    def create_enumerator(self) -> SplitEnumerator:
        return CdcEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return CdcReader(self, context)

    def produced_type(self) -> Any:
        if self.output == "changes":
            return Change
        [shape] = self.tables.values()
        return None if shape is None else RowTypeInfo(_types(shape), shape.names)

    def validate(self) -> None:
        """Check the server, the publication, the tables and the slot.

        Raises:
            InvalidJob: a table does not have a declared column.
            SourceError: the source cannot read changes because of the server, a right, the publication, a table or the slot.
        """
        with self.server.connect(SourceError, autocommit=True) as connection:
            look(connection, self)


def _types(shape: RecordShape) -> list[Any]:
    found: Any = RecordShape(shape.fields, "row").produced_type()
    return list(found.get_field_types())


class CdcReader(SourceReader):
    """Reader of one subtask."""

    def __init__(self, source: PostgresCdcSource, context: ReaderContext) -> None:
        self._source = source
        job = "" if context.operator is None else context.operator.job_id
        operator = hashlib.blake2b(context.uid.encode(), digest_size=4).hexdigest()
        self._who = f"penstock {job} {operator} {source.slot}"[:63]
        self._changes: ChangesReader | None = None
        self._taken: dict[int, int] = {}
        """Positions of checkpoints that are not complete yet."""

    def open_split(self, split: Split, position: Any) -> SplitReader:
        if split.id != CHANGES:
            return RowRangeReader(self._source, split, position)
        self._changes = ChangesReader(self._source, split, position, self._who)
        return self._changes

    def snapshot(self, checkpoint_id: int) -> None:
        if self._changes is not None:
            self._taken[checkpoint_id] = self._changes.lsn

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        lsn = self._taken.get(checkpoint_id)
        self._taken = {taken: at for taken, at in self._taken.items() if taken > checkpoint_id}
        if lsn is not None and self._changes is not None:
            self._changes.confirm(lsn)


class PostgresCdcSourceBuilder:
    """Builder of a `PostgresCdcSource`."""

    def __init__(self) -> None:
        self._conninfo = ""
        self._password_file = ""
        self._tables: dict[str, Declaration] = {}
        self._slot = ""
        self._publication = "penstock"
        self._creates_publication = False
        self._choices: dict[str, str] = {}
        self._splits: int | None = None
        self._heartbeat_ms = 5_000

    def set_conninfo(self, conninfo: str) -> PostgresCdcSourceBuilder:
        """Set the connection string of libpq; see `penstock.connectors.postgres`."""
        self._conninfo = conninfo
        return self

    def set_password_file(self, password_file: str) -> PostgresCdcSourceBuilder:
        """Set a file with the password, read at every connection."""
        self._password_file = password_file
        return self

    def set_table(self, table: str, fields: Declaration = None) -> PostgresCdcSourceBuilder:
        """Add a table, "table" or "schema.table", and its columns to read (see `formats.shape`). By default all columns are read."""
        self._tables[table] = fields
        return self

    def set_slot_name(self, slot_name: str) -> PostgresCdcSourceBuilder:
        """Set the replication slot, which only this job may use. The source creates it if it does not exist. It never drops the slot."""
        self._slot = slot_name
        return self

    def set_publication(self, publication: str) -> PostgresCdcSourceBuilder:
        """Set the publication. The default is "penstock"."""
        self._publication = publication
        return self

    def set_creates_publication(self, creates: bool) -> PostgresCdcSourceBuilder:
        """Create the publication if it does not exist. The user must own the tables."""
        self._creates_publication = creates
        return self

    def set_startup(self, startup: str) -> PostgresCdcSourceBuilder:
        """Set what the first start reads: "initial", all rows and then changes, or "latest", only new changes."""
        return self._choose("startup", startup)

    def set_output(self, output: str) -> PostgresCdcSourceBuilder:
        """Set the records: "rows", `Row`s of one table with a `RowKind`, or "changes", `Change`s with the row before and after."""
        return self._choose("output", output)

    def set_changelog_mode(self, mode: str) -> PostgresCdcSourceBuilder:
        """Set the form of updates, for rows.

        - "upsert": the new row. If the key changed, a delete of the row with the old key comes first.
        - "all": the old row, then the new row. This needs REPLICA IDENTITY FULL.
        """
        return self._choose("mode", mode)

    def set_truncate(self, truncate: str) -> PostgresCdcSourceBuilder:
        """Set the reaction to TRUNCATE, for rows: "fail" or "skip"."""
        return self._choose("truncate", truncate)

    def set_unchanged_values(self, unchanged: str) -> PostgresCdcSourceBuilder:
        """Set the reaction to omitted values, for rows: "fail", or "none", which reads them as None.

        The log omits large values (TOAST) that an update did not touch, except with REPLICA IDENTITY FULL.
        """
        return self._choose("unchanged", unchanged)

    def set_schema_changes(self, schema_changes: str) -> PostgresCdcSourceBuilder:
        """Set the reaction to added, removed or changed columns: "fail" if they are among the fields, or "follow"."""
        return self._choose("schema_changes", schema_changes)

    def set_splits(self, splits: int) -> PostgresCdcSourceBuilder:
        """Set the number of ranges of an integer key. By default, one for each subtask or for each million rows, whichever is more."""
        if splits < 1:
            raise InvalidJob(f"splits={splits} is too small", remedy="set splits to at least 1")
        self._splits = splits
        return self

    def set_heartbeat_interval(self, interval: TimeLike) -> PostgresCdcSourceBuilder:
        """Set the interval at which the source reports its position and requests the server's position. The default is 5 s.

        The slot thus advances even if only other tables change.
        """
        self._heartbeat_ms = as_millis(interval, "interval")
        return self

    def _choose(self, name: str, value: str) -> PostgresCdcSourceBuilder:
        if value not in CHOICES[name]:
            raise InvalidJob(
                f"{name.replace('_', ' ')}: {value!r} is not a valid choice",
                remedy=f"write {' or '.join(map(repr, CHOICES[name]))}",
            )
        self._choices[name] = value
        return self

    def build(self) -> PostgresCdcSource:
        """Return the source.

        Raises:
            InvalidJob: a setting is missing, settings contradict each other, or the extra is not installed.
        """
        package()
        if not self._conninfo or not self._tables:
            raise InvalidJob(
                "PostgresCdcSource has no server or no table",
                remedy="call set_conninfo('…') and set_table('…', fields)",
            )
        if not _SLOT_NAME.fullmatch(self._slot):
            raise InvalidJob(
                f"slot name {self._slot!r} is not valid",
                remedy="call set_slot_name('…') with lower-case letters, digits and _; only this job may use the slot",
            )
        is_rows = self._choices.get("output", "rows") == "rows"
        if is_rows and len(self._tables) > 1:
            raise InvalidJob(
                f"rows of {len(self._tables)} tables cannot be told apart, because a row does not name its table",
                remedy="call set_output('changes'), which names the table; or use a source and a slot for each table",
            )
        form = "row" if is_rows else None
        shapes = {
            name: None if fields is None else RecordShape.of(fields, form) for name, fields in self._tables.items()
        }
        return PostgresCdcSource(
            Server(self._conninfo, self._password_file),
            shapes,
            self._slot,
            self._publication,
            self._choices,
            creates_publication=self._creates_publication,
            splits=self._splits,
            heartbeat_ms=self._heartbeat_ms,
        )
