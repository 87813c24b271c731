"""`PostgresCdcSource`: a table's rows and then its changes.

changes = PostgresCdcSource.builder().set_conninfo("postgresql://job@db/shop").set_table("orders", {"id": int, "total": float})
changes = changes.set_publication("penstock").set_slot_name("orders_job").build()
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.postgres.cdc.changes import Change, ChangeRecords
from penstock.connectors.postgres.cdc.enumerator import CHANGES, CdcEnumerator
from penstock.connectors.postgres.cdc.row_ranges import RowRangeReader
from penstock.connectors.postgres.cdc.server_facts import look
from penstock.connectors.postgres.cdc.stream import ChangesReader
from penstock.connectors.postgres.client import Server, package
from penstock.connectors.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator, SplitReader

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_CHOICES = {
    "startup": ("initial", "latest"),
    "output": ("rows", "changes"),
    "mode": ("upsert", "all"),
    "truncate": ("fail", "skip"),
    "unchanged": ("fail", "none"),
    "schema_changes": ("fail", "follow"),
}


class PostgresCdcSource(Source):
    """Made by `builder()`.

    Args:
        tables: shapes by table; None: all columns.
        choices: see the builder's methods; what is not given is the first of `_CHOICES`.
    """

    bounded = False
    tells_last_positions = True

    def __init__(
        self,
        server: Server,
        tables: Mapping[str, RecordShape | None],
        slot: str,
        publication: str,
        choices: Mapping[str, str],
        *,
        creates_publication: bool = False,
        splits: int | None = None,
        heartbeat_ms: int = 5_000,
    ) -> None:
        chosen = {name: values[0] for name, values in _CHOICES.items()} | dict(choices)
        self.server = server
        self.tables = dict(tables)
        self.slot = slot
        self.publication = publication
        self.creates_publication = creates_publication
        self.reads_rows = chosen["startup"] == "initial"
        self.output = chosen["output"]
        self.mode = chosen["mode"]
        self.follows = chosen["schema_changes"] == "follow"
        self.form = "row" if self.output == "rows" else None
        self.splits = splits
        self.heartbeat_ms = heartbeat_ms
        self.records = ChangeRecords(self.output, self.mode, chosen["truncate"], chosen["unchanged"])

    @staticmethod
    def builder() -> PostgresCdcSourceBuilder:
        """
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
        """
        Raises:
            InvalidJob: a table has no such columns.
            SourceError: the server, a right, the publication, a table or the slot is not as it must be.
        """
        with self.server.connect(SourceError, autocommit=True) as connection:
            look(connection, self)


def _types(shape: RecordShape) -> list[Any]:
    found: Any = RecordShape(shape.fields, "row").produced_type()
    return list(found.get_field_types())


class CdcReader(SourceReader):
    """Of one subtask."""

    def __init__(self, source: PostgresCdcSource, context: ReaderContext) -> None:
        self._source = source
        job = "" if context.operator is None else context.operator.job_id
        operator = hashlib.blake2b(context.uid.encode(), digest_size=4).hexdigest()
        self._who = f"penstock {job} {operator} {source.slot}"[:63]
        self._changes: ChangesReader | None = None
        self._taken: dict[int, int] = {}
        """Positions by checkpoint, until it is complete."""

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
    """What is read, from where, and what becomes of it."""

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
        """libpq's; see `penstock.connectors.postgres`."""
        self._conninfo = conninfo
        return self

    def set_password_file(self, password_file: str) -> PostgresCdcSourceBuilder:
        """Holds the password; read at every connection."""
        self._password_file = password_file
        return self

    def set_table(self, table: str, fields: Declaration = None) -> PostgresCdcSourceBuilder:
        """A table, "table" or "schema.table", and which columns of it (see `formats.shape`); all unless given. May be called for several."""
        self._tables[table] = fields
        return self

    def set_slot_name(self, slot_name: str) -> PostgresCdcSourceBuilder:
        """The replication slot, of this job alone. It is made if it is not there, and stays until somebody drops it."""
        self._slot = slot_name
        return self

    def set_publication(self, publication: str) -> PostgresCdcSourceBuilder:
        """ "penstock" unless said."""
        self._publication = publication
        return self

    def set_creates_publication(self, creates: bool) -> PostgresCdcSourceBuilder:
        """Make the publication if it is not there; the user must own the tables."""
        self._creates_publication = creates
        return self

    def set_startup(self, startup: str) -> PostgresCdcSourceBuilder:
        """Where the first start begins: "initial", all rows and then changes, or "latest", changes from now on."""
        return self._choose("startup", startup)

    def set_output(self, output: str) -> PostgresCdcSourceBuilder:
        """ "rows": `Row`s with a `RowKind`, of one table; "changes": `Change`s, with both images."""
        return self._choose("output", output)

    def set_changelog_mode(self, mode: str) -> PostgresCdcSourceBuilder:
        """Of rows: "upsert", an update is the row as it is now (and the delete of the one with the old key, if that changed); "all", with the row as it
        was in front of it, which needs REPLICA IDENTITY FULL."""
        return self._choose("mode", mode)

    def set_truncate(self, truncate: str) -> PostgresCdcSourceBuilder:
        """Of rows: what becomes of TRUNCATE: "fail" or "skip"."""
        return self._choose("truncate", truncate)

    def set_unchanged_values(self, unchanged: str) -> PostgresCdcSourceBuilder:
        """Of rows: large values (TOAST) that an update did not touch, which the log has only with REPLICA IDENTITY FULL: "fail", or "none"."""
        return self._choose("unchanged", unchanged)

    def set_schema_changes(self, schema_changes: str) -> PostgresCdcSourceBuilder:
        """Columns that come, go or change their type: "fail", where they are among the fields, or "follow"."""
        return self._choose("schema_changes", schema_changes)

    def set_splits(self, splits: int) -> PostgresCdcSourceBuilder:
        """Ranges of an integer key in which the rows are read; one for each subtask or million rows unless given."""
        if splits < 1:
            raise InvalidJob(f"splits={splits}", remedy="1 or more")
        self._splits = splits
        return self

    def set_heartbeat_interval(self, interval: TimeLike) -> PostgresCdcSourceBuilder:
        """How often the server is told the position and asked for its own, so that its log goes on where other tables are written; 5 s unless said."""
        self._heartbeat_ms = as_millis(interval, "interval")
        return self

    def _choose(self, name: str, value: str) -> PostgresCdcSourceBuilder:
        if value not in _CHOICES[name]:
            raise InvalidJob(
                f"{name.replace('_', ' ')}: {value!r}", remedy=f"write {' or '.join(map(repr, _CHOICES[name]))}"
            )
        self._choices[name] = value
        return self

    def build(self) -> PostgresCdcSource:
        """
        Raises:
            InvalidJob: something is missing or contradicts itself, or the extra is not installed.
        """
        package()
        if not self._conninfo or not self._tables:
            raise InvalidJob(
                "a source of changes without server or table", remedy="set_conninfo('…') and set_table('…', fields)"
            )
        if not _SLOT_NAME.fullmatch(self._slot):
            raise InvalidJob(
                f"slot name {self._slot!r}",
                remedy="set_slot_name('…'): small letters, digits and _; a slot of this job alone",
            )
        is_rows = self._choices.get("output", "rows") == "rows"
        if is_rows and len(self._tables) > 1:
            raise InvalidJob(
                f"rows of {len(self._tables)} tables could not be told apart",
                remedy="set_output('changes'), which name their table; or a source, slot and all, for each",
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
