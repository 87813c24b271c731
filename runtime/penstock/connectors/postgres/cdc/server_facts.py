"""What must be so before changes can be read: looked at before the job starts, and when it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.postgres.cdc.columns import CapturedTable
from penstock.connectors.postgres.cdc.messages import lsn_of, lsn_text
from penstock.connectors.postgres.client import Server, check_rights, is_integer, look_up, quoted
from penstock.connectors.postgres.fitting import check_fields

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.source import PostgresCdcSource

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
    """`id`: "schema.table", as the log names it. `size`: about how many rows. `filter`: the publication's, in SQL."""

    id: str
    sql: str
    captured: CapturedTable
    size: int
    filter: str = ""


def look(connection: Any, source: PostgresCdcSource) -> list[FoundTable]:
    """The tables, if everything is as it must be.

    Raises:
        InvalidJob: fields that a table does not have.
        SourceError: the server, a right, the publication or a table is not as it must be; says what to do.
    """
    _check_server(connection, source.server)
    _check_publication(connection, source)
    tables = _published(connection, source, [_table(connection, source, name) for name in source.tables])
    slot = slot_of(connection, source.slot)
    if slot is None:
        free = "current_setting('max_replication_slots')::int > (select count(*) from pg_replication_slots)"
        if not connection.execute(f"select {free}").fetchone()[0]:
            raise SourceError(
                f"{source.server.shown}: all replication slots are taken",
                remedy="raise max_replication_slots, or drop what nobody uses: select * from pg_replication_slots where not active",
            )
    else:
        check_slot(slot, source, None)
    return tables


def published_now(
    connection: Any, source: PostgresCdcSource, names: Sequence[str]
) -> tuple[frozenset[str], dict[str, int]]:
    """What the publication has, and the OIDs of tables ("schema.table") that are there."""
    published = frozenset(row[0] for row in connection.execute(_PUBLISHED, [source.publication]))
    return published, dict(connection.execute(_OIDS, [list(names)]).fetchall())


def slot_of(connection: Any, name: str) -> Slot | None:
    found = connection.execute(_SLOT, [name]).fetchone()
    return None if found is None else Slot(*found)


def check_slot(slot: Slot | None, source: PostgresCdcSource, position: int | None) -> None:
    """
    Args:
        position: from where on the job needs the log; None: it begins.

    Raises:
        SourceError: the slot does not have that any more; says what is lost.
    """
    where, name = source.server.shown, source.slot
    anew = (
        f"drop the slot if it is there (select pg_drop_replication_slot('{name}')) and start the job without the state of this source: "
        "it reads all rows again"
    )
    lost = "" if position is None else f"changes from {lsn_text(position)} on that were not read are lost"
    if slot is None:
        raise SourceError(f"{where}: there is no replication slot {name!r} any more: {lost}", remedy=f"{anew}")
    if slot.kind != "logical" or slot.plugin != "pgoutput" or not slot.is_of_this_database:
        raise SourceError(
            f"{where}: replication slot {name!r} is for something else ({slot.kind}, {slot.plugin})",
            remedy="set_slot_name('…') to another name",
        )
    if slot.wal_status == "lost":
        raise SourceError(
            f"{where}: the server has given up replication slot {name!r} (wal_status=lost), because the job was away or slow for longer than "
            f"max_slot_wal_keep_size allows{': ' + lost if lost else ''}",
            remedy=f"{anew}; and raise max_slot_wal_keep_size",
        )
    if position is not None and slot.confirmed is not None and lsn_of(slot.confirmed) > position:
        raise SourceError(
            f"{where}: replication slot {name!r} is at {slot.confirmed}, beyond this job's position {lsn_text(position)}: changes in between "
            "were confirmed by a later checkpoint, or by another job with the same slot",
            remedy=f"start from the newest checkpoint or savepoint, which the slot fits; or {anew}",
        )


def _check_server(connection: Any, server: Server) -> None:
    version, level, is_replica = connection.execute(
        "select current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()"
    ).fetchone()
    if is_replica:
        raise SourceError(
            f"{server.shown} is a replica (in recovery), which makes no slots",
            remedy="name the primary: target_session_attrs=read-write in conninfo finds it among several hosts",
        )
    if version < _OLDEST:
        raise SourceError(f"{server.shown}: Postgres {version // 10000}", remedy="changes are read from Postgres 13 on")
    if level != "logical":
        raise SourceError(
            f"{server.shown}: wal_level is {level!r}, and changes are in the log only when it is 'logical'",
            remedy="alter system set wal_level = logical, and start the server again",
        )
    role, may = connection.execute(_ROLE).fetchone()
    if not may:
        raise SourceError(f"{server.shown}: user {role!r} may not replicate", remedy=f"alter role {role} replication")


def _check_publication(connection: Any, source: PostgresCdcSource) -> None:
    found = connection.execute(_PUBLICATION, [source.publication]).fetchone()
    if found is None:
        if source.creates_publication:
            return
        raise SourceError(
            f"{source.server.shown}: there is no publication {source.publication!r}",
            remedy=f"{create_publication(source)}; or set_creates_publication(True)",
        )
    if not found[1]:
        raise SourceError(
            f"{source.server.shown}: publication {source.publication!r} leaves out inserts, updates or deletes",
            remedy=f"alter publication {quoted(source.publication)} set (publish = 'insert, update, delete, truncate')",
        )


def create_publication(source: PostgresCdcSource) -> str:
    return f"create publication {quoted(source.publication)} for table {', '.join(map(quoted, source.tables))}"


def _table(connection: Any, source: PostgresCdcSource, name: str) -> FoundTable:
    server, shape, sql = source.server, source.tables[name], quoted(name)
    table = look_up(connection, server, name, SourceError)
    if shape is not None:
        check_fields(shape.schema, table, writes=False)
    table_id, identity, kind, count, has_children = connection.execute(_RELATION, [sql]).fetchone()
    if has_children:
        raise SourceError(
            f"{server.shown}: tables inherit from {sql}: their rows are among its rows, and their changes in the log are not its own",
            remedy="partition the table (partition by …), or read each of those tables by a source of its own",
        )
    via_root = connection.execute(_PUBLICATION, [source.publication]).fetchone()
    if kind == "p" and via_root is not None and not via_root[2]:
        raise SourceError(
            f"{server.shown}: {sql} is partitioned, and publication {source.publication!r} publishes its partitions",
            remedy=f"alter publication {quoted(source.publication)} set (publish_via_partition_root = true)",
        )
    if identity == "n":
        raise SourceError(
            f"{server.shown}: {sql} has REPLICA IDENTITY NOTHING: the log would not say which row was changed",
            remedy=f"alter table {sql} replica identity default (its primary key), or full",
        )
    if source.mode == "all" and identity != "f":
        raise SourceError(
            f"{server.shown}: rows as they were before an update are in the log only with REPLICA IDENTITY FULL, which {sql} has not",
            remedy=f"alter table {sql} replica identity full, or set_changelog_mode('upsert')",
        )
    found = connection.execute(_KEY, [sql, identity]).fetchone()
    key = () if found is None else tuple(found[0])
    if source.reads_rows:
        check_rights(table, ["SELECT"], server, SourceError)
    if not key and (source.reads_rows or identity != "f"):
        raise SourceError(
            f"{server.shown}: {sql} has no primary key, by which rows that are read are told from their changes",
            remedy="add one, or a unique index with REPLICA IDENTITY USING INDEX; or set_startup('latest') with REPLICA IDENTITY FULL",
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
            f"fields {', '.join(generated)} of {sql} are generated columns, which are not in the log",
            remedy="compute them in the job",
        )


def _published(connection: Any, source: PostgresCdcSource, tables: list[FoundTable]) -> list[FoundTable]:
    """The tables with the columns and rows that the publication has of them."""
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


def _narrowed(
    table: FoundTable, source: PostgresCdcSource, names: list[str] | None, row_filter: str | None
) -> FoundTable:
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
