"""Errors for changes that cannot be read. Each error has a remedy, and comes before the job starts if possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, PenstockError, SourceError
from penstock.connectors.postgres.cdc import stream
from penstock.datastream.connectors.postgres import PostgresCdcSource
from tests.integration.postgres.cdc.captures import CapturedTable, Job, logical
from tools.servers.postgres import PostgresServer

__all__ = ["logical"]
pytestmark = pytest.mark.postgres


@pytest.fixture
def table(logical: PostgresServer) -> Iterator[CapturedTable]:
    found = CapturedTable(logical)
    yield found
    found.forget()


def refused(source: Any, message: str, remedy: str, kind: type[PenstockError] = SourceError) -> None:
    with pytest.raises(kind, match=message) as caught:
        source.validate()
    assert remedy in caught.value.remedy


def test_a_missing_right_or_setting_is_an_error_before_the_job_starts(
    table: CapturedTable, postgres: PostgresServer
) -> None:
    builder = table.builder
    table.execute(f"create table {table.name}_2 (id int)")
    table.execute("drop role if exists poor")
    table.execute("create role poor login password 'x'")
    here = table.server
    refused(builder().set_conninfo(postgres.conninfo).build(), "wal_level is 'replica'", "wal_level = logical")
    refused(
        builder().set_conninfo(here.conninfo_of("poor", "x")).build(),
        "'poor' may not replicate",
        "alter role poor replication",
    )
    refused(
        builder().set_publication("none").build(),
        "the publication 'none' does not exist",
        f'create publication "none" for table "{table.name}"',
    )
    refused(builder({"ID": int}).build(), "no column 'ID'", "alter the table", InvalidJob)
    refused(builder().set_changelog_mode("all").build(), "REPLICA IDENTITY FULL", "replica identity full")
    other = builder().set_output("changes").set_table(f"{table.name}_2")
    refused(other.build(), "no primary key", "set_startup")
    table.execute(f"alter table {table.name}_2 add primary key (id)")
    refused(other.build(), f'does not have "{table.name}_2"', "add table")
    table.execute(f"alter table {table.name} replica identity nothing")
    refused(builder().build(), "REPLICA IDENTITY NOTHING", "replica identity default")
    table.execute(f"alter table {table.name} replica identity default")
    table.execute(f"alter publication {table.name} set table {table.name} (id, n)")
    refused(builder().build(), "leaves out columns key", "do not declare them")
    builder({"id": int, "n": int}).build().validate()
    table.execute("alter role poor replication")
    refused(builder({"id": int}).set_conninfo(here.conninfo_of("poor", "x")).build(), "may not SELECT", "GRANT SELECT")
    table.execute(f"drop table {table.name}_2; drop role poor")


def test_the_builder_refuses_contradictory_settings(table: CapturedTable) -> None:
    with pytest.raises(InvalidJob, match="cannot be told apart"):
        table.builder().set_table("another").build()
    with pytest.raises(InvalidJob, match="slot name 'Big Slot'"):
        table.builder().set_slot_name("Big Slot").build()
    with pytest.raises(InvalidJob, match="has no server or no table"):
        PostgresCdcSource.builder().set_slot_name("s").build()
    with pytest.raises(InvalidJob, match="truncate: 'drop'"):
        table.builder().set_truncate("drop")


def failing(job: Job, message: str) -> SourceError:
    """Return the error that ends the job's reading."""
    with pytest.raises(SourceError, match=message) as caught:
        job.until(lambda: False)
    return caught.value


def started_job(
    table: CapturedTable, change: Callable[[Any], Any] = lambda builder: builder, fields: Any = None
) -> Job:
    """Return a job that reads changes and has a checkpoint."""
    job = Job(change(table.builder(fields) if fields else table.builder()).build())
    table.add(1)
    job.until(lambda: "changes" in job.splits and len(job.records) == 1)
    job.checkpoint()
    return job


def test_an_incomplete_change_stops_the_job_unless_configured_otherwise(table: CapturedTable) -> None:
    table.execute(f"alter table {table.name} alter key set storage external")
    job = started_job(table)
    table.execute(f"update {table.name} set key = repeat('x', 9000)")
    job.until(lambda: len(job.records) == 2)
    job.checkpoint()
    table.execute(f"update {table.name} set n = 1")
    assert "replica identity full" in failing(job, "does not have 'key' of a row").remedy
    job.source = table.builder().set_unchanged_values("none").build()
    job.die()
    job.until(lambda: len(job.records) == 3)
    assert tuple(job.records[2]) == (1, None, 1)
    job.checkpoint()
    table.execute(f"truncate {table.name}")
    table.add(8)
    assert "set_output" in failing(job, "was truncated").remedy
    job.source = table.builder().set_unchanged_values("none").set_truncate("skip").build()
    job.die()
    job.until(lambda: len(job.records) == 4)
    assert tuple(job.records[3]) == (8, "k2", 0)
    job.close()


def test_updates_without_the_old_row_stop_a_job_that_requires_it(table: CapturedTable) -> None:
    table.execute(f"alter table {table.name} replica identity full")
    job = started_job(table, lambda builder: builder.set_changelog_mode("all"))
    table.execute(f"alter table {table.name} replica identity default")
    table.add(2)
    job.until(lambda: len(job.records) == 2)
    job.checkpoint()
    table.execute(f"update {table.name} set n = 1 where id = 2")
    assert "replica identity full" in failing(job, "as it was before its update").remedy
    job.close()


def test_another_schema_stops_the_job_or_is_followed(table: CapturedTable) -> None:
    job = started_job(table, fields={"id": int, "n": int})
    table.execute(f"alter table {table.name} drop column key, add column more text default 'm'")
    table.execute(f"update {table.name} set n = 2")
    job.until(lambda: len(job.records) == 2)
    assert tuple(job.records[1]) == (1, 2)
    job.checkpoint()
    table.execute(f"alter table {table.name} alter n type text")
    table.execute(f"update {table.name} set n = '3'")
    assert "set_schema_changes" in failing(job, "column 'n' changed from int8 to text").remedy
    job.close()


def test_rows_without_declared_fields_have_all_columns(logical: PostgresServer) -> None:
    table = CapturedTable(logical)
    job = Job(table.builder(None).build())
    table.add(1)
    job.until(lambda: "changes" in job.splits and len(job.records) == 1)
    job.checkpoint()
    table.execute(f"alter table {table.name} drop column key, add column more text default 'm'")
    table.execute(f"update {table.name} set n = 2")
    failing(job, "column 'key' was removed; column 'more' .text. was added")
    job.source = table.builder(None).set_schema_changes("follow").build()
    job.die()
    job.until(lambda: len(job.records) == 2)
    assert job.records[1].as_dict() == {"id": 1, "n": 2, "more": "m"}
    job.close()
    table.forget()


def test_a_table_may_be_removed_later_but_not_added(table: CapturedTable) -> None:
    table.execute(
        f"create table {table.name}_2 (id int primary key); alter publication {table.name} add table {table.name}_2"
    )
    job = started_job(table, lambda builder: builder.set_output("changes").set_table(f"{table.name}_2"))
    table.execute(f"insert into {table.name}_2 values (1)")
    table.add(5)
    job.until(lambda: len(job.records) == 3)
    job.source = table.builder().set_output("changes").build()
    job.die()
    job.until(lambda: len(job.records) == 2)
    assert [change.table for change in job.records] == [table.name] * 2
    job.source = table.builder().set_output("changes").set_table(f"{table.name}_2").set_table("third").build()
    with pytest.raises(InvalidJob, match="added or removed: third"):
        job.die()
    job.close()
    table.execute(f"drop table {table.name}_2")


def test_a_slot_that_was_dropped_or_advanced_is_an_error_that_shows_the_loss(table: CapturedTable) -> None:
    job = started_job(table)
    job.step()
    job.close()
    old = job._checkpoint
    job.die()
    table.add(2)
    job.until(lambda: len(job.records) == 2)
    job.checkpoint()
    slot = "select confirmed_flush_lsn from pg_replication_slots where slot_name = %s"
    was = table.execute(slot, [table.name])
    job.until(lambda: table.execute(slot, [table.name]) != was)
    job._checkpoint = old
    job.die()
    assert "start from the newest checkpoint" in failing(job, "beyond this job's position").remedy
    job.close()
    assert table.execute("select pg_drop_replication_slot(%s)", [table.name])
    job.die()
    failing(job, r"replication slot .* no longer exists: unread changes from [0-9A-F/]+ on are lost")
    job.close()


def test_an_invalidated_slot_is_an_error(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "postgres", is_logical=True, max_slot_wal_keep_size="1MB") as server:
        table = CapturedTable(server)
        job = started_job(table)
        job.close()
        for _ in range(4):
            table.execute("select pg_logical_emit_message(false, 'fills', repeat('x', 1000000))")
            table.execute("select pg_switch_wal()")
            table.execute("checkpoint")
        state = "select wal_status from pg_replication_slots"
        assert table.execute(state) == [("lost",)]
        job.die()
        error = failing(job, "has invalidated replication slot .*wal_status=lost.*unread changes from .* are lost")
        assert "raise max_slot_wal_keep_size" in error.remedy
        refused(job.source, "has invalidated replication slot", "pg_drop_replication_slot")
        job.close()


def test_a_slot_serves_one_job(table: CapturedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PATIENCE_S", 0.5)
    job = started_job(table)
    second = Job(table.builder().set_startup("latest").build())
    second.reader._who = "penstock another"
    second.step()
    second.close()
    second.splits["changes"] = (
        second.splits["changes"][0],
        second.reader.open_split(second.splits["changes"][0], None),
    )
    error = failing(second, "in use by process [0-9]+ of the server .penstock ")
    assert "set_slot_name" in error.remedy
    second.close()
    job.step()
    job.close()


def test_a_lost_tasks_connection_to_the_slot_is_terminated(table: CapturedTable) -> None:
    job = started_job(table)
    left = job.splits
    job._begin()
    table.add(2)
    job.until(lambda: len(job.records) == 2)
    for _, reader in left.values():
        reader.close()
    job.close()


def test_the_log_of_another_server_is_refused(table: CapturedTable) -> None:
    job = started_job(table)
    job._checkpoint = job._checkpoint.replace(
        f'"system": "{job.splits["changes"][1].position["system"]}"', '"system": "1"'
    )
    job.die()
    failing(job, "is not the server .system")
    job.close()


def test_the_source_waits_for_a_server_that_restarts(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "postgres", is_logical=True) as server:
        table = CapturedTable(server)
        job = started_job(table)
        table.add(2)
        server.kill()
        assert job.step() in (0, 1)
        server.restart()
        table.add(3)
        job.until(lambda: [row[0] for row in job.records] == [1, 2, 3])
        server.pause()
        before = time.monotonic()
        job.step()
        assert time.monotonic() - before < 1
        server.resume()
        table.add(4)
        job.until(lambda: len(job.records) == 4)
        job.close()


def test_a_publication_that_is_dropped_stops_the_job_at_the_next_change(table: CapturedTable) -> None:
    job = started_job(table)
    table.execute(f"drop publication {table.name}")
    table.add(2)
    failing(
        job,
        f"""publication "{table.name}" does not exist|publication '{table.name}' no longer has public.{table.name}""",
    )
    job.close()
