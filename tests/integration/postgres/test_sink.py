"""Rows into a table: upserts, one transaction for each checkpoint, and errors at the start."""

from __future__ import annotations

import datetime
import decimal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from penstock.common.errors import InvalidJob, PenstockError, SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.tables import commits
from penstock.connectors.tables.commits import NOTES
from penstock.datastream.connectors.postgres import DeliveryGuarantee, PostgresSink
from tests.committables import settled
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[Table]:
    found = Table(postgres)
    yield found
    found.execute(f"drop table {found.name}")


def ends(sink: PostgresSink, job: str) -> tuple[Any, Any]:
    committer = sink.create_committer({}, job_id=job, uid="sink")
    return sink.create_writer(WriterContext(0, 2, 1, "sink", job), []), committer


def voted(writer: Any, checkpoint: int, *ids: int) -> list[Any]:
    writer.write([{"id": n, "key": f"k{n % 3}"} for n in ids], None, 0)
    return settled(writer.prepare_commit(checkpoint))


def test_rows_of_a_checkpoint_are_added_once_by_its_commit(table: Table) -> None:
    sink = table.sink()
    sink.validate()
    writer, committer = ends(sink, table.name)
    first, second = voted(writer, 1, 1, 2), voted(writer, 2, 3)
    assert table.ids() == []
    committer.commit(first)
    assert table.ids() == [1, 2]
    committer.commit(second + first)
    ends(sink, table.name)[1].commit(first + second)
    ends(sink, "a job that began from its savepoint")[1].commit(second)
    assert table.ids() == [1, 2, 3]


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE])
def test_rows_replace_those_with_their_key_and_the_last_one_wins(table: Table, guarantee: DeliveryGuarantee) -> None:
    sink = table.sink(key=["id"], guarantee=guarantee)
    sink.validate()
    writer, committer = ends(sink, table.name)
    for checkpoint, rows in enumerate([[(1, "a"), (2, "b"), (1, "c")], [(2, "d"), (3, "e"), (2, "f")]], 1):
        writer.write(rows, None, 0)
        votes = settled(writer.prepare_commit(checkpoint))
        if committer is not None:
            committer.commit(votes)
    assert table.execute(f"select id, key from {table.name} order by id") == [(1, "c"), (2, "f"), (3, "e")]


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE])
def test_deletes_of_a_changelog_delete_rows(table: Table, guarantee: DeliveryGuarantee) -> None:
    sink = table.sink(key=["id"], deletes=True, guarantee=guarantee)
    sink.validate()
    writer, committer = ends(sink, table.name)

    def write(checkpoint: int, *changes: tuple[RowKind, int, str | None]) -> None:
        writer.write([Row.of_kind(kind, id=n, key=key) for kind, n, key in changes], None, 0)
        votes = settled(writer.prepare_commit(checkpoint))
        if committer is not None:
            committer.commit(votes)

    table.add(7)
    write(1, (RowKind.INSERT, 1, "a"), (RowKind.INSERT, 2, "b"), (RowKind.INSERT, 3, "c"), (RowKind.DELETE, 3, None))
    write(2, (RowKind.UPDATE_BEFORE, 1, "a"), (RowKind.UPDATE_AFTER, 1, "A"), (RowKind.DELETE, 2, None))
    write(3, (RowKind.DELETE, 1, None), (RowKind.INSERT, 1, "again"), (RowKind.DELETE, 99, None))
    assert table.execute(f"select id, key from {table.name} order by id") == [(1, "again"), (7, "k1")]


def test_at_least_once_rows_are_written_at_the_barrier_or_after_the_batch_time(table: Table) -> None:
    writer, committer = ends(table.sink(guarantee=AT_LEAST_ONCE, batch_rows=3), table.name)
    assert committer is None
    writer.write([{"id": n, "key": "a"} for n in range(3)], None, 0)
    assert table.ids() == [0, 1, 2]
    writer.write([{"id": 3, "key": "a"}], None, 0)
    assert writer.next_processing_time(5_000) == 6_000
    writer.advance_processing_time(6_000)
    assert table.ids() == [0, 1, 2, 3]
    voted(writer, 1, 4)
    assert table.ids() == [0, 1, 2, 3, 4]


def cut_connections(table: Table) -> None:
    table.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock'")


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE])
def test_the_sink_reconnects_after_a_lost_connection(table: Table, guarantee: DeliveryGuarantee) -> None:
    writer, committer = ends(table.sink(key=["id"], guarantee=guarantee), table.name)
    for checkpoint in range(1, 4):
        votes = voted(writer, checkpoint, checkpoint)
        cut_connections(table)
        if committer is not None:
            committer.commit(votes)
    assert table.ids() == [1, 2, 3]


def test_a_commit_that_breaks_off_in_the_middle_leaves_nothing(table: Table) -> None:
    writer, committer = ends(table.sink(), table.name)
    votes = voted(writer, 1, *range(1000))
    write, tries = committer._write, 0

    def torn(*arguments: Any) -> None:
        nonlocal tries
        tries += 1
        write(*arguments)
        if tries < 3:
            cut_connections(table)  # after the rows and the note, before the commit
            assert table.ids() == []

    committer._write = torn
    committer.commit(votes)
    assert tries == 3
    assert table.ids() == list(range(1000))


def test_a_second_committer_waits_for_a_running_commit(table: Table) -> None:
    sink = table.sink()
    writer, zombie = ends(sink, table.name)
    _, successor = ends(sink, table.name)
    votes = voted(writer, 1, 1)
    write = zombie._write
    written, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        write(*arguments)
        written.set()
        go_on.wait(20)

    zombie._write = slow
    first = threading.Thread(target=zombie.commit, args=(votes,))
    second = threading.Thread(target=successor.commit, args=(votes,))
    first.start()
    assert written.wait(20)
    second.start()
    time.sleep(0.3)
    assert second.is_alive()
    go_on.set()
    first.join(20)
    second.join(20)
    assert table.ids() == [1]


def test_a_committer_that_waited_for_the_lock_sees_the_others_note_at_any_isolation_level(
    table: Table, postgres: PostgresServer
) -> None:
    """A snapshot from the time of the lock request would not contain the other committer's note."""
    setting = "-c default_transaction_isolation=repeatable\\ read"
    conninfo = psycopg.conninfo.make_conninfo(postgres.conninfo, options=setting)
    sink = PostgresSink(conninfo, table.name, {"id": int, "key": str})
    writer, first = ends(sink, table.name)
    second = ends(sink, table.name)[1]
    votes = voted(writer, 1, 1, 2)
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    thread = threading.Thread(target=second.commit, args=[votes])
    note = first._note

    def wait(*arguments: Any) -> None:
        note(*arguments)
        thread.start()
        while table.execute(waiting) == [(0,)]:
            time.sleep(0.02)

    first._note = wait
    close, failed_attempts = second.close, 0

    def closing() -> None:
        nonlocal failed_attempts
        failed_attempts += 1  # each failed attempt closes its connection
        close()

    second.close = closing
    first.commit(votes)
    thread.join(30)
    assert failed_attempts == 0
    assert table.ids() == [1, 2]


def written(writer: Any, committer: Any) -> None:
    votes = voted(writer, 1, 1, 100)  # with AT_LEAST_ONCE this writes the rows
    committer.commit(votes)


def test_a_row_that_the_server_rejects_is_an_error_and_is_not_retried(table: Table) -> None:
    table.execute(f"alter table {table.name} add check (id < 100)")
    for guarantee in (DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE):
        writer, committer = ends(table.sink(guarantee=guarantee), f"{table.name} {guarantee}")
        with pytest.raises(SinkError, match="violates check constraint") as caught:
            written(writer, committer)
        assert "correct or filter such rows" in str(caught.value)
    assert table.ids() == []


def test_restarted_checkpoint_ids_are_distinguished_from_a_retry(table: Table) -> None:
    writer, committer = ends(table.sink(), table.name)
    committer.commit(voted(writer, 1, 1) + voted(writer, 3, 3))
    for again in (1, 2, 3):
        with pytest.raises(SinkError, match="started again at 1"):
            committer.commit(voted(writer, again, 50))
    assert table.ids() == [1, 3]


def test_old_checkpoints_are_distinguished_from_restarted_ids_even_without_their_notes(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "KEPT", 3)
    writer, committer = ends(table.sink(), table.name)
    votes = []
    for number in range(1, 9):
        votes.append(voted(writer, number, number))
        committer.commit(votes[-1])
    for vote in votes:  # a restore from an old savepoint commits again
        committer.commit(vote)
    time.sleep(0.002)
    for checkpoint in (1, 5, 6, 8):
        with pytest.raises(SinkError, match="started again at 1"):
            committer.commit(voted(writer, checkpoint, 70))
    committer.commit(voted(writer, 9, 9))
    assert table.ids() == list(range(1, 10))


class Everything(NamedTuple):
    id: int
    flag: bool
    x: float
    price: decimal.Decimal
    day: datetime.date
    at: datetime.datetime
    raw: bytes
    tags: list[str]
    about: dict[str, int]
    note: str | None


def test_values_of_all_types_come_back(postgres: PostgresServer) -> None:
    columns = "id bigint primary key, flag boolean, x double precision, price numeric(9, 2), day date, at timestamptz, raw bytea, tags text[], about jsonb, note varchar(5)"
    table = Table(postgres, columns)
    at = datetime.datetime(2013, 7, 1, 12, 0, 0, 123456)
    value = Everything(
        1, True, 0.5, decimal.Decimal("1.50"), at.date(), at, b"\x00\xff", ["a", "b\t\\N"], {"n": 1}, None
    )
    sink = table.sink(Everything)
    sink.validate()
    writer, committer = ends(sink, table.name)
    writer.write([value], None, 0)
    committer.commit(settled(writer.prepare_commit(1)))
    [row] = table.execute(f"select * from {table.name}")
    assert row[5] == at.replace(tzinfo=datetime.UTC)
    assert row[:5] == value[:5]
    assert row[6:] == value[6:]


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({"id": int, "extra": int}, {}, "no column 'extra'"),
        ({"id": str, "key": str}, {}, "column 'id' has the type int8, but the job's field has string"),
        ({"key": str}, {}, "column 'id' is required"),
        ({"id": int, "key": str}, {"key": ["key"]}, "no primary key or unique index"),
    ],
)
def test_fields_that_do_not_fit_are_refused_at_the_start(table: Table, fields: Any, options: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        table.sink(fields, **options).validate()


def test_missing_servers_users_and_tables_are_errors_at_the_start(table: Table, tmp_path: Path) -> None:
    server = table.server
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    table.execute(f"create role r{table.name} login password 'secret'")
    user = f"r{table.name}"

    def refused(conninfo: str, name: str = table.name, **options: Any) -> str:
        with pytest.raises(PenstockError) as caught:
            PostgresSink(conninfo, name, {"id": int, "key": str}, **options).validate()
        assert "secret" not in str(caught.value)
        return str(caught.value)

    assert "check user and password" in refused(server.conninfo_of("admin"), password_file=str(secret))
    assert "cannot be read" in refused(server.conninfo_of("admin"), password_file=str(tmp_path / "none"))
    assert "check that the server runs" in refused("postgresql://admin@127.0.0.1:1/postgres")
    assert "create the database" in refused(server.conninfo_of("admin", server.password, "nowhere"))
    assert "table 'nothing' does not exist" in refused(server.conninfo, "nothing")
    assert "cannot be parsed" in refused("what=ever")
    secret.write_text("secret\n")
    assert "GRANT INSERT" in refused(server.conninfo_of(user), password_file=str(secret))
    table.execute(f"grant insert on {table.name} to {user}; drop table if exists {NOTES}")
    assert f"may not create the table '{NOTES}'" in refused(server.conninfo_of(user), password_file=str(secret))
    PostgresSink(
        server.conninfo_of(user),
        table.name,
        {"id": int, "key": str},
        guarantee=AT_LEAST_ONCE,
        password_file=str(secret),
    ).validate()


def test_exactly_once_needs_checkpoints(table: Table) -> None:
    with pytest.raises(InvalidJob, match="needs checkpoints"):
        table.sink().check_checkpoints(0, bounded=False)
    table.sink(guarantee=AT_LEAST_ONCE).check_checkpoints(0, bounded=False)


def test_a_server_that_is_killed_and_restarted_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with PostgresServer(tmp_path) as server:
        table = Table(server)
        writer, committer = ends(table.sink(), table.name)
        committer.commit(voted(writer, 1, 1))
        server.kill()
        votes = voted(writer, 2, 2)
        back = threading.Timer(1.0, server.restart)
        back.start()
        committer.commit(votes)
        back.join()
        committer.commit(votes)
        assert table.ids() == [1, 2]
        with psycopg.connect(server.conninfo) as connection:
            assert connection.execute(f"select count(*) from {NOTES}").fetchone() == (2,)
