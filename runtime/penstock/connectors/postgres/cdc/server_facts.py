"""Checks of the server's configuration for reading changes. They run before the job starts, and at its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.postgres.cdc.columns import CapturedTable
from penstock.connectors.postgres.cdc.messages import lsn_of, lsn_text
from penstock.connectors.postgres.client import Server, check_rights, is_integer, look_up, quoted
from penstock.connectors.postgres.fitting import check_fields

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

_OLDEST = 130_000
_ROLE = """
select rolname, rolsuper or rolreplication or exists (
  select from pg_roles r where r.rolname in ('rds_replication', 'cloudsqlreplica') and pg_has_role(current_user, r.oid, 'member'))
from pg_roles where rolname = current_user"""
_PUBLICATION = (
    "select puballtables, pubinsert and pubupdate and pubdelete, pubviaroot from pg_publication where pubname = %s"
)
_PUBLISHED = """
select schemaname || '.' || tablename, to_jsonb(t) -> 'attnames', to_jsonb(t) ->> 'rowfilter' from pg_publication_tables t where pubname = %s"""
_RELATION = """
select n.nspname || '.' || c.relname, c.relreplident, c.relkind, c.reltuples::bigint,
  c.relkind = 'r' and exists (select from pg_inherits i where i.inhparent = c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)"""
_KEY = """
select array_agg(a.attname::text order by array_position(i.indkey::int2[], a.attnum)) from pg_index i join pg_attribute a
on a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])
where i.indrelid = to_regclass(%s) and case when %s = 'i' then i.indisreplident else i.indisprimary end group by i.indexrelid"""
_COLUMNS = """
select attname, atttypid::bigint from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped
and attgenerated = '' order by attnum"""
_OIDS = """
select n.nspname || '.' || c.relname, c.oid::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname || '.' || c.relname = any(%s)"""
_SLOT = """
select plugin, database = current_database(), wal_status, confirmed_flush_lsn::text, restart_lsn::text, active_pid, slot_type
from pg_replication_slots where slot_name = %s"""


class Slot(NamedTuple):
    plugin: str | None
    is_of_this_database: bool | None
    wal_status: str | None
    confirmed: str | None
    restart: str | None
    active_pid: int | None
    kind: str


class FoundTable(NamedTuple):
    """A table on the server."""

    id: str
    """ "schema.table", the name in the log."""
    sql: str
    captured: CapturedTable
    size: int
    """Estimated number of rows."""
    filter: str = ""
    """Row filter of the publication, in SQL."""


def look(connection: Any, source: CdcSettings) -> list[FoundTable]:
    """Check everything, and return the tables.

    Raises:
        InvalidJob: a table does not have a declared field.
        SourceError: the source cannot read changes because of the server, a right, the publication or a table. The error names the
            remedy.
    """
    _check_server(connection, source.server)
    _check_publication(connection, source)
    tables = _published(connection, source, [_table(connection, source, name) for name in source.tables])
    slot = slot_of(connection, source.slot)
    if slot is None:
        free = "current_setting('max_replication_slots')::int > (select count(*) from pg_replication_slots)"
        if not connection.execute(f"select {free}").fetchone()[0]:
            raise SourceError(
                f"{source.server.shown}: all replication slots are in use",
                remedy="raise max_replication_slots, or drop unused slots: select * from pg_replication_slots where not active",
            )
    else:
        check_slot(slot, source, None)
    return tables


def published_now(connection: Any, source: CdcSettings, names: Sequence[str]) -> tuple[frozenset[str], dict[str, int]]:
    """Return the tables of the publication, and the OIDs of the existing tables among `names` ("schema.table")."""
    published = frozenset(row[0] for row in connection.execute(_PUBLISHED, [source.publication]))
    return published, dict(connection.execute(_OIDS, [list(names)]).fetchall())


def slot_of(connection: Any, name: str) -> Slot | None:
    found = connection.execute(_SLOT, [name]).fetchone()
    return None if found is None else Slot(*found)


def check_slot(slot: Slot | None, source: CdcSettings, position: int | None) -> None:
    """Check that the slot still has the log that the job needs.

    Args:
        position: start of the log that the job needs; None means that the job starts for the first time.

    Raises:
        SourceError: the slot no longer has this part of the log. The error says what is lost.
    """
    where, name = source.server.shown, source.slot
    start_again = (
        f"drop the slot if it exists (select pg_drop_replication_slot('{name}')) and start the job without the state of this source: "
        "it reads all rows again"
    )
    lost = "" if position is None else f"unread changes from {lsn_text(position)} on are lost"
    if slot is None:
        raise SourceError(f"{where}: replication slot {name!r} no longer exists: {lost}", remedy=start_again)
    if slot.kind != "logical" or slot.plugin != "pgoutput" or not slot.is_of_this_database:
        raise SourceError(
            f"{where}: replication slot {name!r} has another purpose ({slot.kind}, {slot.plugin})",
            remedy="call set_slot_name('…') with another name",
        )
    if slot.wal_status == "lost":
        raise SourceError(
            f"{where}: the server has invalidated replication slot {name!r} (wal_status=lost), because the job was stopped or slow for longer "
            f"than max_slot_wal_keep_size allows{': ' + lost if lost else ''}",
            remedy=f"{start_again}; and raise max_slot_wal_keep_size",
        )
    if position is not None and slot.confirmed is not None and lsn_of(slot.confirmed) > position:
        raise SourceError(
            f"{where}: replication slot {name!r} is at {slot.confirmed}, beyond this job's position {lsn_text(position)}. A later "
            "checkpoint, or another job with the same slot, has confirmed the changes in between",
            remedy=f"start from the newest checkpoint or savepoint, which fits the slot; or {start_again}",
        )


def _check_server(connection: Any, server: Server) -> None:
    version, level, is_replica = connection.execute(
        "select current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()"
    ).fetchone()
    if is_replica:
        raise SourceError(
            f"{server.shown} is a replica (in recovery), which cannot create slots",
            remedy="name the primary: target_session_attrs=read-write in conninfo finds it among several hosts",
        )
    if version < _OLDEST:
        raise SourceError(
            f"{server.shown}: Postgres {version // 10000} is too old to read changes", remedy="use Postgres 13 or newer"
        )
    if level != "logical":
        raise SourceError(
            f"{server.shown}: wal_level is {level!r}, but the log has changes only if it is 'logical'",
            remedy="alter system set wal_level = logical, and restart the server",
        )
    role, may = connection.execute(_ROLE).fetchone()
    if not may:
        raise SourceError(f"{server.shown}: user {role!r} may not replicate", remedy=f"alter role {role} replication")


def _check_publication(connection: Any, source: CdcSettings) -> None:
    found = connection.execute(_PUBLICATION, [source.publication]).fetchone()
    if found is None:
        if source.creates_publication:
            return
        raise SourceError(
            f"{source.server.shown}: the publication {source.publication!r} does not exist",
            remedy=f"{create_publication(source)}; or call set_creates_publication(True)",
        )
    if not found[1]:
        raise SourceError(
            f"{source.server.shown}: publication {source.publication!r} leaves out inserts, updates or deletes",
            remedy=f"alter publication {quoted(source.publication)} set (publish = 'insert, update, delete, truncate')",
        )


def create_publication(source: CdcSettings) -> str:
    return f"create publication {quoted(source.publication)} for table {', '.join(map(quoted, source.tables))}"


def _table(connection: Any, source: CdcSettings, name: str) -> FoundTable:
    server, shape, sql = source.server, source.tables[name], quoted(name)
    table = look_up(connection, server, name, SourceError)
    if shape is not None:
        check_fields(shape.schema, table, writes=False)
    table_id, identity, kind, count, has_children = connection.execute(_RELATION, [sql]).fetchone()
    if has_children:
        raise SourceError(
            f"{server.shown}: tables inherit from {sql}. A query returns their rows too, but the log has their changes under their own names",
            remedy="partition the table (partition by …), or read each of those tables with a separate source",
        )
    via_root = connection.execute(_PUBLICATION, [source.publication]).fetchone()
    if kind == "p" and via_root is not None and not via_root[2]:
        raise SourceError(
            f"{server.shown}: {sql} is partitioned, and publication {source.publication!r} publishes its partitions",
            remedy=f"alter publication {quoted(source.publication)} set (publish_via_partition_root = true)",
        )
    if identity == "n":
        raise SourceError(
            f"{server.shown}: {sql} has REPLICA IDENTITY NOTHING, so the log does not identify changed rows",
            remedy=f"alter table {sql} replica identity default (its primary key), or full",
        )
    if source.mode == "all" and identity != "f":
        raise SourceError(
            f"{server.shown}: the log has rows before an update only with REPLICA IDENTITY FULL, which {sql} does not have",
            remedy=f"alter table {sql} replica identity full, or call set_changelog_mode('upsert')",
        )
    found = connection.execute(_KEY, [sql, identity]).fetchone()
    key = () if found is None else tuple(found[0])
    if source.reads_rows:
        check_rights(table, ["SELECT"], server, SourceError)
    if not key and (source.reads_rows or identity != "f"):
        raise SourceError(
            f"{server.shown}: {sql} has no primary key. The source needs it to match changes to the rows that it reads",
            remedy="add one, or a unique index with REPLICA IDENTITY USING INDEX; or call set_startup('latest') with REPLICA IDENTITY FULL",
        )
    has_integer_key = len(key) == 1 and is_integer(table.columns[key[0]])
    columns = tuple((column, oid) for column, oid in connection.execute(_COLUMNS, [sql]))
    _check_generated(shape, columns, sql)
    return FoundTable(table_id, sql, CapturedTable(name, key, has_integer_key, columns), max(count, 0))


def _check_generated(shape: Any, columns: Sequence[tuple[str, int]], sql: str) -> None:
    names = {name for name, _ in columns}
    generated = [] if shape is None else [name for name in shape.names if name not in names]
    if generated:
        raise InvalidJob(
            f"fields {', '.join(generated)} of {sql} are generated columns, which the log does not have",
            remedy="compute them in the job",
        )


def _published(connection: Any, source: CdcSettings, tables: list[FoundTable]) -> list[FoundTable]:
    """Return the tables, limited to the columns and rows of the publication."""
    if connection.execute(_PUBLICATION, [source.publication]).fetchone() is None:
        return tables
    published = {row[0]: (row[1], row[2]) for row in connection.execute(_PUBLISHED, [source.publication])}
    missing = [table.sql for table in tables if table.id not in published]
    if missing:
        raise SourceError(
            f"{source.server.shown}: publication {source.publication!r} does not have {', '.join(missing)}",
            remedy=f"alter publication {quoted(source.publication)} add table {', '.join(missing)}",
        )
    return [_narrowed(table, source, *published[table.id]) for table in tables]


def _narrowed(table: FoundTable, source: CdcSettings, names: list[str] | None, row_filter: str | None) -> FoundTable:
    captured = table.captured
    if names is not None:
        captured = captured._replace(columns=tuple(column for column in captured.columns if column[0] in names))
        shape = source.tables[captured.name]
        wanted = () if shape is None else shape.names
        left_out = [name for name in (*wanted, *captured.key) if name not in names]
        if left_out:
            raise SourceError(
                f"{source.server.shown}: publication {source.publication!r} leaves out columns {', '.join(left_out)} of {table.sql}",
                remedy="add them to the publication's list of columns (alter publication … set table …), or do not declare them",
            )
    return table._replace(captured=captured, filter=row_filter or "")
