"""Changes that have vanished from the log, as if the table had not changed. The source reports them as lost and stops."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.connectors.postgres.cdc import watched_tables
from tests.integration.postgres.cdc.captures import COLUMNS, CapturedTable, Job, applied, logical
from tests.integration.postgres.cdc.test_changes_refused import failing, started_job
from tools.servers.postgres import PostgresServer

__all__ = ["logical"]
pytestmark = pytest.mark.postgres


@pytest.fixture
def table(logical: PostgresServer) -> Iterator[CapturedTable]:
    found = CapturedTable(logical)
    yield found
    found.forget()


def connected(table: CapturedTable) -> Job:
    job = started_job(table)
    table.add(5)
    job.until(lambda: len(job.records) == 2)
    job.checkpoint()
    return job


def test_a_table_that_is_removed_from_the_publication_stops_the_job(
    table: CapturedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_tables, "LOOK_S", 0.2)
    job = connected(table)
    table.execute(f"create table {table.name}_2 (id int primary key)")
    table.execute(f"alter publication {table.name} set table {table.name}_2")
    table.add(6)
    assert "add table" in failing(job, f"no longer has public.{table.name}.*are lost").remedy
    job.die()
    failing(job, f"no longer has public.{table.name}")
    job.close()
    table.execute(f"drop table {table.name}_2")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_renamed_table_stops_the_job_until_it_has_its_old_name(table: CapturedTable, *, is_away: bool) -> None:
    job = connected(table)
    if is_away:
        job.close()
    table.execute(f"alter table {table.name} rename to {table.name}_old")
    table.execute(f"insert into {table.name}_old values (7, 'x', 0)")
    if is_away:
        job.die()
    failing(job, f"no longer has public.{table.name}" if is_away else f"is now called 'public.{table.name}_old'")
    table.execute(f"alter table {table.name}_old rename to {table.name}")
    job.die()
    if not is_away:  # the log has the change under the new name
        failing(job, "is now called")
    job.close()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_recreated_table_with_the_same_name_is_a_different_table(table: CapturedTable, *, is_away: bool) -> None:
    table.execute(f"drop publication {table.name}; create publication {table.name} for all tables")
    job = connected(table)
    if is_away:
        job.close()
    table.execute(f"drop table {table.name}; create table {table.name} ({COLUMNS})")
    table.add(8)
    if is_away:
        job.die()
    failing(job, f"table 'public.{table.name}' is not the table whose changes were read")
    job.close()


def test_tables_with_child_tables_are_refused_at_the_start(table: CapturedTable) -> None:
    table.execute(f"create table {table.name}_heir () inherits ({table.name})")
    with pytest.raises(SourceError, match="tables inherit from"):
        table.builder().build().validate()
    table.execute(f"drop table {table.name}_heir")


def test_a_promoted_server_that_lacks_read_changes_is_refused(tmp_path: Path) -> None:
    """A copy of the data, like that of a lagging replica, starts a new timeline at the end of its log."""
    root = tmp_path / "postgres"
    server = PostgresServer(root, is_logical=True).start()
    try:
        table = CapturedTable(server)
        job = connected(table)
        job.close()
        server.stop()
        subprocess.run(["cp", "-a", str(root / "data"), str(root / "behind")], check=True)
        server.start()
        job.die()
        table.add(6)
        job.until(lambda: len(job.records) == 3)
        job.checkpoint()
        job.close()
        server.stop()
        (root / "data").rename(root / "died")
        (root / "behind").rename(root / "data")
        (root / "data" / "recovery.signal").touch()
        with (root / "data" / "postgresql.auto.conf").open("a") as settings:
            settings.write("restore_command = 'false'\n")
        server.start()
        until(lambda: table.execute("select pg_is_in_recovery()") == [(False,)])
        table.add(*range(10, 200))  # the log is longer than the job's position again
        job.die()
        failing(job, "a promoted replica or a backup, has it only up to")
        job.close()
    finally:
        server.stop()


def test_a_replica_is_refused_at_the_start(tmp_path: Path) -> None:
    root = tmp_path / "postgres"
    with PostgresServer(root, is_logical=True) as server:
        table = CapturedTable(server)
        sink = table.sink({"id": int, "key": str, "n": int})
        sink.create_committer({}, job_id="job", uid="sink")
        server.stop()
        (root / "data" / "standby.signal").touch()
        server.start()
        for end, kind in ((table.builder().build(), SourceError), (sink, SinkError)):
            with pytest.raises(kind, match=r"is a replica|during recovery") as caught:
                end.validate()
            assert "target_session_attrs=read-write" in caught.value.remedy


def test_included_columns_of_an_index_are_not_part_of_the_key(logical: PostgresServer) -> None:
    table = CapturedTable(logical, "id bigint, key text, n bigint not null default 0, primary key (id) include (n)")
    job = started_job(table)
    table.add(2, 3)
    table.execute(
        f"update {table.name} set n = 5 where id = 1; delete from {table.name} where id = 2; update {table.name} set id = 7 where id = 3"
    )
    job.until(lambda: len(job.records) == 7)
    assert applied(job.records) == table.rows()
    job.close()
    table.forget()


def test_limits_of_the_role_do_not_end_the_reading(table: CapturedTable) -> None:
    user = f"r{table.name}"
    table.execute(f"create role {user} login replication password 'x'; grant select on {table.name} to {user}")
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"):
        table.execute(f"alter role {user} set {limit} = '100ms'")
    table.execute(f"alter role {user} set datestyle = 'SQL, DMY'")
    table.add(*range(500))
    job = Job(table.builder().set_conninfo(table.server.conninfo_of(user, "x")).set_splits(1).build())
    job.step(10)
    table.execute("select pg_sleep(0.3)")
    job.step(10)
    first = job.splits[next(iter(job.splits))][1].position
    assert first["parts"] == []  # the slot is still in its first snapshot
    job.until(lambda: len(job.records) == 500)
    table.add(1000)
    job.until(lambda: len(job.records) == 501)
    table.execute("select pg_sleep(0.3)")
    table.add(1001)
    job.until(lambda: len(job.records) == 502)
    job.close()


def test_a_large_transaction_is_read_once_although_job_and_server_are_killed_within_it(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "postgres", is_logical=True) as server:
        table = CapturedTable(server)
        job = started_job(table)
        with psycopg.connect(server.conninfo) as connection:
            connection.execute(f"insert into {table.name} select n, 'k', n from generate_series(2, 100000) n")
        for until in (30_000, 60_000):
            job.until(lambda until=until: job.step(5_000) >= 0 and len(job.records) >= until)
            job.checkpoint()
            job.step(3_000)
            server.kill()
            server.restart()
            job.die()
        job.until(lambda: job.step(5_000) >= 0 and len(job.records) >= 100_000)
        assert [row[0] for row in job.records] == list(range(1, 100_001))
        job.close()
