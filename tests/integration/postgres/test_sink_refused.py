"""Errors of a sink, because its table or server would reject its rows.

They come before the job starts if possible, or else from the task that has the row."""

from __future__ import annotations

import datetime
import decimal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.common.errors import PenstockError, RecordFormatError, SinkError
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.tables import commits
from penstock.connectors.tables.commits import NOTES
from penstock.datastream.connectors.postgres import DeliveryGuarantee, PostgresSink
from tests.committables import settled
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
FIELDS = {"id": int, "key": str}
BERLIN = datetime.timezone(datetime.timedelta(hours=2))


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[Table]:
    found = Table(postgres)
    yield found
    found.execute(f"drop table if exists {found.name} cascade")


@pytest.fixture
def poor(table: Table) -> Iterator[Any]:
    """Yield the sink of a user who may write to the table, and to the table of notes."""
    PostgresSink(table.server.conninfo, table.name, FIELDS).create_committer({}, job_id="any", uid="sink")
    user = f"r{table.name}"
    table.execute(f"create role {user} login password 'x'; grant select, insert, update on {table.name} to {user}")
    table.execute(f"grant select, insert, delete on {NOTES} to {user}")
    yield PostgresSink(table.server.conninfo_of(user, "x"), table.name, FIELDS, key=["id"])
    table.execute(f"drop owned by {user}; drop role {user}")


def refused(sink: PostgresSink, message: str, remedy: str = "") -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        sink.validate()
    assert remedy in caught.value.remedy


def through(sink: PostgresSink, *values: Any) -> None:
    writer = sink.create_writer(WriterContext(0, 1, 1, "sink", sink.table), [])
    writer.write(list(values), None, 0)
    votes = settled(writer.prepare_commit(1))
    committer = sink.create_committer({}, job_id=sink.table, uid="sink")
    if committer is not None:
        committer.commit(votes)
        committer.close()


def test_keys_are_those_of_an_index_at_any_moment(postgres: PostgresServer) -> None:
    late = Table(postgres, "id bigint primary key deferrable, key text")
    refused(late.sink(key=["id"]), "not deferrable. of exactly id")
    carrying = Table(postgres, "id bigint, key text not null, primary key (id) include (key)")
    refused(carrying.sink(key=["id", "key"]), "of exactly id, key")
    sink = carrying.sink(key=["id"])
    sink.validate()
    through(sink, (1, "a"), (1, "b"))
    assert carrying.execute(f"select * from {carrying.name}") == [(1, "b")]


def test_a_relation_that_cannot_store_rows_is_refused_at_the_start(table: Table) -> None:
    table.execute(f"create view {table.name}_v as select * from {table.name}")
    refused(PostgresSink(table.server.conninfo, f"{table.name}_v", FIELDS), "cannot copy to view")
    table.execute(f"create materialized view {table.name}_m as select * from {table.name}")
    refused(PostgresSink(table.server.conninfo, f"{table.name}_m", FIELDS), "cannot copy to materialized view")


def test_rights_other_than_the_tables_are_checked_before_the_job_starts(table: Table, poor: PostgresSink) -> None:
    user = f"r{table.name}"
    poor.validate()
    table.execute(f"revoke delete on {NOTES} from {user}")
    refused(poor, "may not DELETE", f'GRANT DELETE ON "{NOTES}"')
    table.execute(f"grant delete on {NOTES} to {user}; revoke temp on database postgres from public")
    try:
        refused(poor, "temporary tables", "GRANT this right")
    finally:
        table.execute("grant temp on database postgres to public")
    table.execute(
        f"create sequence {table.name}_s; alter table {table.name} add n int default nextval('{table.name}_s')"
    )
    refused(poor, f"takes values from {table.name}_s", "GRANT USAGE ON SEQUENCE")
    table.execute(f"grant usage on sequence {table.name}_s to {user}")
    poor.validate()
    table.execute(f"create policy p on {table.name} using (true); alter table {table.name} enable row level security")
    poor.validate()
    refused(PostgresSink(poor.server.conninfo, table.name, FIELDS), "row-level security")
    table.execute(f"alter role {user} set default_transaction_read_only = on")
    refused(poor, "read-only transaction", "target_session_attrs")
    table.execute(f"alter role {user} connection limit 0")
    refused(poor, "too many connections", "raise max_connections")
    hidden = f"{table.name}_h"
    table.execute(f"alter role {user} reset all; alter role {user} connection limit -1; create schema {hidden}")
    table.execute(f"create table {hidden}.t (id bigint); grant all on {hidden}.t to {user}")
    refused(PostgresSink(poor.server.conninfo, f"{hidden}.t", {"id": int}), "permission denied for schema")
    table.execute(f"drop schema {hidden} cascade; drop policy p on {table.name}")


def test_a_validation_writes_nothing(table: Table) -> None:
    table.execute(f"create table {table.name}_log (n int)")
    table.execute(
        f"create function {table.name}_f() returns trigger language plpgsql as $$ begin insert into {table.name}_log values (1); return null; end $$"
    )
    table.execute(f"create trigger t after insert on {table.name} for each statement execute function {table.name}_f()")
    table.sink(key=["id"]).validate()
    assert table.execute(f"select * from {table.name}_log") == []
    with psycopg.connect(table.server.conninfo) as holder:
        holder.execute(f"lock table {table.name} in share mode")
        table.sink(key=["id"]).validate()  # the check waits only for some seconds
    table.execute(f"drop table {table.name}_log; drop function {table.name}_f cascade")


@dataclass
class Line:
    price: decimal.Decimal
    counts: dict[str, int]


@pytest.mark.parametrize(
    ("column", "kind", "value", "found"),
    [
        ("jsonb", Line, Line(decimal.Decimal("1.50"), {"a": 1}), '{"price": 1.500000000000000000, "counts": {"a": 1}}'),
        ("jsonb", dict[int, int], {7: 1}, '{"7": 1}'),
        ("jsonb[]", list[dict[str, int]], [{"a": 1}, None], '{"{\\"a\\": 1}",NULL}'),
        (
            "timestamp",
            pa.timestamp("us", "Europe/Berlin"),
            datetime.datetime(2020, 7, 1, 12, tzinfo=BERLIN),
            "2020-07-01 10:00:00",
        ),
        ("timestamp", pa.timestamp("ns"), 1_577_836_800_123_456_789, "2020-01-01 00:00:00.123456"),
        ("numeric", pa.uint64(), 2**64 - 1, str(2**64 - 1)),
        ("text", str, "", ""),
    ],
)
@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_values_are_stored_unchanged(
    postgres: PostgresServer, column: str, kind: Any, value: Any, found: str, guarantee: DeliveryGuarantee
) -> None:
    table = Table(postgres, f"v {column}")
    fields = pa.schema({"v": kind}) if isinstance(kind, pa.DataType) else {"v": kind}
    sink = table.sink(fields, guarantee=guarantee)
    sink.validate()
    through(sink, {"v": value}, {"v": None})
    assert table.execute(f"select v::text from {table.name}") == [(found,), (None,)]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("int", pa.uint32()),
        ("bigint", pa.uint64()),
        ("smallint", pa.uint16()),
        ("jsonb", pa.struct({"b": pa.binary()})),
    ],
)
def test_types_with_values_that_do_not_fit_are_refused(
    postgres: PostgresServer, column: str, kind: pa.DataType
) -> None:
    refused(Table(postgres, f"v {column}").sink(pa.schema({"v": kind})), "do not fit")


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [("text", str, "a\0b"), ("text[]", list[str], ["a", "\0"]), ("jsonb", dict[str, str], {"a": "\0"})],
)
def test_text_that_postgres_cannot_store_is_an_error_of_the_task(
    postgres: PostgresServer, column: str, kind: Any, value: Any
) -> None:
    """An error at the commit would be too late: the job could not continue from the complete checkpoint."""
    sink = Table(postgres, f"v {column}").sink({"v": kind})
    writer = sink.create_writer(WriterContext(0, 1, 1, "sink", "job"), [])
    with pytest.raises(RecordFormatError, match="'v' have the character NUL"):
        writer.write([{"v": value}], None, 0)


def test_a_domain_is_treated_as_its_base_type(postgres: PostgresServer) -> None:
    table = Table(postgres, "id bigint primary key, key text")
    table.execute(
        f"create domain {table.name}_d as bigint check (value > 0); alter table {table.name} alter id type {table.name}_d"
    )
    sink = table.sink(key=["id"])
    sink.validate()
    through(sink, (1, "a"))
    assert table.ids() == [1]


def test_the_error_for_a_row_that_is_rejected_at_its_commit_has_a_remedy(table: Table) -> None:
    table.execute(f"alter table {table.name} add check (id < 100)")
    with pytest.raises(SinkError, match="violates check constraint") as caught:
        through(table.sink(), (100, "a"))
    assert "To drop such a row, start from an older checkpoint" in caught.value.remedy


def test_a_statement_that_takes_too_long_names_the_limit(
    table: Table, poor: PostgresSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "PATIENCE_S", 0.1)
    table.execute(
        f"create function {table.name}_f() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return new; end $$"
    )
    table.execute(f"create trigger t before insert on {table.name} for each row execute function {table.name}_f()")
    table.execute(f"alter role r{table.name} set statement_timeout = '100ms'")
    with pytest.raises(SinkError, match="statement timeout") as caught:
        through(poor, (1, "a"))
    assert "raise statement_timeout" in caught.value.remedy
    assert table.ids() == []
    table.execute(f"drop function {table.name}_f cascade")


def test_a_server_that_is_read_only_for_a_while_is_retried(table: Table, poor: PostgresSink) -> None:
    """A server is read-only for a while when it hands over to another one."""
    user = f"r{table.name}"
    writer = poor.create_writer(WriterContext(0, 1, 1, "sink", "job"), [])
    writer.write([(1, "a")], None, 0)
    votes = settled(writer.prepare_commit(1))
    committer = poor.create_committer({}, job_id=table.name, uid="sink")
    assert committer is not None
    table.execute(f"alter role {user} set default_transaction_read_only = on")
    takes_over = threading.Timer(0.5, table.execute, [f"alter role {user} reset all"])
    takes_over.start()
    committer.commit(votes)
    takes_over.join()
    committer.close()
    assert table.ids() == [1]


def test_both_sides_detect_a_lost_machine(table: Table) -> None:
    with table.sink().server.connect(SinkError) as connection:
        found = {name: connection.execute(f"show tcp_keepalives_{name}").fetchone()[0] for name in ("idle", "count")}
        assert found == {"idle": "30", "count": "3"}
        with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as own:
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    sink = PostgresSink(f"{table.server.conninfo}?keepalives_idle=7&application_name=mine", table.name, FIELDS)
    with sink.server.connect(SinkError) as connection:
        assert connection.execute("show application_name").fetchone() == ("mine",)
        assert connection.info.get_parameters()["keepalives_idle"] == "7"


def test_a_server_whose_disk_is_full_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mount a small disk, as root."""
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=110m", "none", str(root)], check=True)
    try:
        with PostgresServer(root, min_wal_size="32MB", max_wal_size="32MB") as server:
            table = Table(server)
            sink = table.sink(key=["id"])
            through(sink, (1, "a"))
            writer = sink.create_writer(WriterContext(0, 1, 1, "sink", sink.table), [])
            writer.write([(n, "x" * 1_000_000) for n in range(2, 12)], None, 0)
            votes = settled(writer.prepare_commit(2))
            fill = root / "fill"
            with fill.open("wb") as file:
                try:
                    while file.write(b"0" * 65536):
                        file.flush()
                except OSError:
                    pass
            committer = sink.create_committer({}, job_id=sink.table, uid="sink")
            assert committer is not None
            with monkeypatch.context() as few:
                few.setattr(commits, "PATIENCE_S", 0.1)
                with pytest.raises(SinkError):
                    committer.commit(votes)
            fill.unlink()
            if server.process is None or server.process.poll() is not None:
                server.restart()
            committer.commit(votes)
            committer.commit(votes)
            assert table.ids() == list(range(1, 12))
            committer.close()
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)
