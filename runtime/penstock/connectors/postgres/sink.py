"""`PostgresSink`: rows into a table.

PostgresSink("postgresql://job@db/weather", "means", {"station": str, "hour": int, "celsius": float}, key=["station", "hour"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.commits import app_of
from penstock.connectors.postgres.client import Server, Table, check_rights, look_up, package, quoted
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.connectors.postgres.fitting import check_fields
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.postgres.writer import DirectWriter, WrittenStagingWriter
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.sql.commits import NOTES

_SEQUENCES = """
select s.oid::regclass::text from pg_attrdef f join pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
join pg_depend d on d.classid = 'pg_attrdef'::regclass and d.objid = f.oid and d.refclassid = 'pg_class'::regclass
join pg_class s on s.oid = d.refobjid
where f.adrelid = to_regclass(%s) and a.attname = any(%s) and case when s.relkind = 'S' then not has_sequence_privilege(s.oid, 'USAGE') end"""


class PostgresSink(Sink):
    """
    Args:
        conninfo: libpq's; see the package.
        table: "table" or "schema.table".
        fields: what records have, by the columns' names (see `formats.shape`); nested fields go into json columns.
        key: columns by which a row replaces one that is there; the table needs a primary key or unique index of just these. Empty: rows are added.
        deletes: records are `Row`s of a table that changes: DELETE removes the row with this key, UPDATE_BEFORE is left out. Rows of one key must come to one
            subtask, in order (`key_by`).
        guarantee: EXACTLY_ONCE, or AT_LEAST_ONCE.
        password_file: holds the password; read at every connection.
        batch_rows: at least once, rows are written when there are so many,
        batch_time: or when they have waited so long, and at every checkpoint.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        fields: Declaration,
        *,
        key: Sequence[str] = (),
        deletes: bool = False,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
        password_file: str = "",
        batch_rows: int = 5_000,
        batch_time: TimeLike = 1_000,
    ) -> None:
        package()
        if guarantee not in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
            raise InvalidJob(f"a Postgres sink with {guarantee}", remedy="EXACTLY_ONCE, or AT_LEAST_ONCE")
        self.server = Server(conninfo, password_file)
        self.table = table
        self.shape = RecordShape.of(fields)
        self.key = tuple(key)
        self.deletes = deletes
        if deletes and not key:
            raise InvalidJob("deletes=True without a key", remedy="name the columns by which rows are found: key=[…]")
        self.guarantee = guarantee
        self.batch_rows = batch_rows
        self.batch_ms = as_millis(batch_time, "batch_time")
        strange = [name for name in self.key if name not in self.shape.names]
        if strange:
            raise InvalidJob(
                f"key={list(key)} of the fields {', '.join(self.shape.names)}", remedy="name fields of the records"
            )

    @property
    def _is_exact(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        if self._is_exact:
            return WrittenStagingWriter(self, app_of(context.job_id, context.uid), context.subtask)
        return DirectWriter(self)

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        if not self._is_exact:
            return None
        committer = PostgresCommitter(self)
        committer.prepare()
        return committer

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        if self._is_exact and not interval_ms and not bounded:
            raise InvalidJob(
                "exactly once into Postgres without checkpoints: nothing would ever be committed",
                remedy="env.enable_checkpointing(1000), or DeliveryGuarantee.AT_LEAST_ONCE",
            )

    def validate(self) -> None:
        """
        Raises:
            InvalidJob: the fields do not fit the table.
            SinkError: the server does not answer or does not let us, or there is no such table, key or right.
        """
        with self.server.connect(SinkError, autocommit=True) as connection:
            table = look_up(connection, self.server, self.table, SinkError)
            replaces = ["SELECT", "UPDATE"] if self.key else []
            check_rights(table, ["INSERT", *replaces, *(["DELETE"] if self.deletes else [])], self.server, SinkError)
            check_fields(self.shape.schema, table, writes=True)
            if self.key and frozenset(self.key) not in table.arbiters:
                raise SinkError(
                    f"{self.server.shown}: {table.sql} has no primary key or unique index (of columns that are NOT NULL, not deferrable) of just "
                    f"{', '.join(self.key)}",
                    remedy="add one, or name the columns of the one that there is as key",
                )
            self._check_sequences(connection, table)
            if self._is_exact:
                self._check_notes(connection)
            self._rehearse(connection)

    def _rehearse(self, connection: Any) -> None:
        """A write of no rows, of which nothing stays: views, policies, keys that are checked later, a server that only reads, …"""
        psycopg = package()
        try:
            with connection.transaction(force_rollback=True):
                connection.execute("set local lock_timeout = '5s'")
                write_rows(connection, quoted(self.table), self.shape.names, self.key, [], deletes=self.deletes)
        except psycopg.errors.LockNotAvailable:
            return  # somebody alters the table: that passes
        except psycopg.Error as error:
            what = f"rows cannot be written to {self.table!r}"
            raise self.server.explained(SinkError, what, error) from error

    def _check_sequences(self, connection: Any, table: Table) -> None:
        """Of the columns that the table fills by itself."""
        own = [name for name in table.columns if name not in self.shape.names]
        missing = [row[0] for row in connection.execute(_SEQUENCES, [quoted(self.table), own])]
        if missing:
            raise SinkError(
                f"{self.server.shown}: {table.sql} takes values from {', '.join(missing)}, which the user may not use",
                remedy=f"GRANT USAGE ON SEQUENCE {', '.join(missing)} TO the job's user",
            )

    def _check_notes(self, connection: Any) -> None:
        if connection.execute("select to_regclass(%s)", [quoted(NOTES)]).fetchone()[0] is not None:
            check_rights(
                look_up(connection, self.server, NOTES, SinkError),
                ["SELECT", "INSERT", "DELETE"],
                self.server,
                SinkError,
            )
        elif not connection.execute("select has_schema_privilege(current_schema(), 'CREATE')").fetchone()[0]:
            raise SinkError(
                f"{self.server.shown}: the user may not create table {NOTES!r}, in which exactly once notes what was written",
                remedy=f"create it as another user and grant SELECT, INSERT, DELETE on it: create table {NOTES} (app text not null, checkpoint "
                "bigint not null, digest text not null, committed_at timestamptz not null default now(), primary key (app, checkpoint))",
            )
