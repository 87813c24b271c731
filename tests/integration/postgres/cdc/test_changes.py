"""Read rows and then their changes, each one once, from any position."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.common.errors import SourceError
from penstock.common.types import RowKind
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.postgres.cdc import enumerator
from penstock.connectors.postgres.cdc.enumerator import CdcEnumerator
from tests.integration.postgres.cdc.captures import CapturedTable, Job, applied, logical
from tools.servers.postgres import PostgresServer

__all__ = ["logical"]
pytestmark = pytest.mark.postgres


@pytest.fixture
def table(logical: PostgresServer) -> Iterator[CapturedTable]:
    found = CapturedTable(logical)
    yield found
    found.forget()


def kinds(records: list[Any]) -> list[str]:
    return [f"{row.get_row_kind()} {tuple(row)}" for row in records]


def test_rows_come_first_and_then_their_changes(table: CapturedTable) -> None:
    table.add(1, 2, 3)
    job = Job(table.builder().build())
    job.until(lambda: len(job.records) == 3)
    table.execute(f"update {table.name} set n = 7 where id = 2")
    table.execute(f"delete from {table.name} where id = 1")
    table.execute(f"update {table.name} set id = 9 where id = 3")
    table.add(4)
    job.until(lambda: len(job.records) == 8)
    assert kinds(sorted(job.records[:3], key=lambda row: row[0])) == [f"+I ({n}, 'k{n % 3}', 0)" for n in (1, 2, 3)]
    assert kinds(job.records[3:]) == [
        "+U (2, 'k2', 7)",
        "-D (1, None, None)",
        "-D (3, None, None)",
        "+U (9, 'k0', 0)",
        "+I (4, 'k1', 0)",
    ]
    job.close()


@pytest.mark.parametrize("seed", range(4))
def test_no_row_is_lost_or_repeated_under_load_when_the_job_is_killed(table: CapturedTable, seed: int) -> None:
    chance = random.Random(seed)
    table.load(chance, 150)
    loads = [threading.Thread(target=table.load, args=(random.Random(f"{seed}-{n}"), 400)) for n in range(2)]
    job = Job(table.builder().set_splits(3).build())
    for load in loads:
        load.start()
    while any(load.is_alive() for load in loads):
        for _ in range(chance.randrange(1, 20)):
            job.step(chance.choice([1, 7, 50]))
            time.sleep(0.002)
        if chance.random() < 0.5:
            job.checkpoint()
        if chance.random() < 0.3:
            job.die()
    for load in loads:
        load.join()
    job.until(lambda: applied(job.records) == table.rows())
    assert {row.get_row_kind() for row in job.records} == {RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}
    changes = len(job.records)
    for _ in range(5):
        job.step()
    assert len(job.records) == changes
    job.close()


def test_the_rest_of_a_partly_read_transaction_is_read(table: CapturedTable) -> None:
    job = Job(table.builder().build())
    job.step()
    for start in range(0, 60, 20):
        table.add(*range(start, start + 20))
    for _ in range(12):
        had = len(job.records)
        job.until(lambda had=had: len(job.records) > had or had == 60)
        job.checkpoint()
        job.die()
        job.step(7)
        job.checkpoint()
    job.until(lambda: len(job.records) == 60)
    assert [row[0] for row in job.records] == list(range(60))
    job.close()


def test_the_slot_keeps_changes_that_no_checkpoint_has(table: CapturedTable) -> None:
    def confirmed() -> Any:
        found = table.execute(
            "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s", [table.name]
        )
        return found[0][0]

    job = Job(table.builder().build())
    job.until(lambda: "changes" in job.splits)
    began = confirmed()
    table.add(*range(5))
    job.until(lambda: len(job.records) == 5)
    for _ in range(5):
        time.sleep(0.06)
        job.step()
    assert confirmed() == began
    job.checkpoint()
    job.until(lambda: confirmed() > began)
    table.execute("create table if not exists of_others as select generate_series(1, 1000) n")
    now = table.execute("select pg_current_wal_insert_lsn() - '0/0'")[0][0]

    def slot_has_advanced() -> bool:
        job.checkpoint()
        return bool(confirmed() >= now)

    job.until(slot_has_advanced)
    job.close()


def test_changes_have_both_images_the_transaction_and_the_time(logical: PostgresServer) -> None:
    table = CapturedTable(logical, "id int primary key, body text, at timestamptz, tags int[]")
    other = CapturedTable(logical, "code text, part int, primary key (code, part)")
    table.execute(f"alter publication {table.name} add table {other.name}")
    table.execute(f"insert into {table.name} values (1, 'there', '2013-07-01 12:00Z', '{{1,2}}')")
    source = table.builder(None).set_table(other.name, {"code": str, "part": int}).set_output("changes").build()
    job = Job(source)
    job.until(lambda: len(job.records) == 1)
    assert job.records[0][:2] == (table.name, "read")
    assert job.records[0].after["tags"] == [1, 2]
    before = int(time.time() * 1000)
    table.execute(
        f"begin; alter table {table.name} alter body set storage external; update {table.name} set body = repeat('x', 9000); commit; "
        f"begin; update {table.name} set tags = null; insert into {other.name} values ('a', 1), ('B', 2); commit; "
        f"alter table {table.name} replica identity full; update {table.name} set id = 2; delete from {other.name} where part = 2; truncate {other.name}"
    )
    job.until(lambda: len(job.records) == 8)
    long, short, first, second, moved, gone, emptied = job.records[1:]
    assert (long.kind, len(long.after["body"]), long.unchanged) == ("update", 9000, ())
    assert (short.before, short.after["body"], short.unchanged) == (None, None, ("body",))
    assert (short.transaction, short.lsn) == (first.transaction, first.lsn) != (long.transaction, long.lsn)
    assert [change.number for change in (short, first, second)] == [1, 2, 3]
    assert (first.kind, first.before, first.after) == ("insert", None, {"code": "a", "part": 1})
    assert (moved.before["id"], moved.after["id"], len(moved.after["body"]), moved.unchanged) == (1, 2, 9000, ())
    assert (gone.kind, gone.before, gone.after) == ("delete", {"code": "B", "part": 2}, None)
    assert (emptied.table, emptied.kind, emptied.before, emptied.after) == (other.name, "truncate", None, None)
    assert all(before - 1000 <= change.committed_at <= time.time() * 1000 + 1000 for change in job.records[1:])
    job.close()
    other.forget()
    table.forget()


def test_old_rows_come_before_their_updates(table: CapturedTable) -> None:
    table.execute(f"alter table {table.name} replica identity full")
    job = Job(table.builder().set_changelog_mode("all").build())
    table.add(1)
    job.until(lambda: len(job.records) == 1)
    table.execute(f"update {table.name} set n = 5")
    table.execute(f"delete from {table.name}")
    job.until(lambda: len(job.records) == 4)
    assert kinds(job.records) == ["+I (1, 'k1', 0)", "-U (1, 'k1', 0)", "+U (1, 'k1', 5)", "-D (1, 'k1', 5)"]
    job.close()


def test_keys_that_are_not_numbers_are_distinguished_too(logical: PostgresServer) -> None:
    table = CapturedTable(logical, "code text, part int, n int, primary key (code, part)")
    table.execute(f"insert into {table.name} select chr(60 + n % 50) || 'ä', n, 0 from generate_series(1, 300) n")
    job = Job(table.builder({"code": str, "part": int, "n": int}).build())
    chance = random.Random(1)
    while job.enumerator.snapshot() is None or job.enumerator.snapshot()["phase"] != "changes":
        job.step(20)
        job.checkpoint()
        table.execute(f"update {table.name} set n = n + 1 where part = %s", [chance.randrange(300)])
        table.execute(f"delete from {table.name} where part = %s", [chance.randrange(300)])
        if chance.random() < 0.5:
            job.die()
    job.until(lambda: sorted(map(tuple, latest(job.records).values())) == sorted(table.rows()))
    job.close()
    table.forget()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bool", "n % 2 = 0"),
        ("char(3)", "chr(97 + n % 3) || case when n % 2 = 0 then e'\\t' else '' end"),
        ("inet", "('10.0.0.' || n % 3 + 1 || case when n % 2 = 0 then '/24' else '' end)::inet"),
    ],
)
def test_keys_whose_log_text_differs_from_a_cast_are_read_once(logical: PostgresServer, kind: str, value: str) -> None:
    table = CapturedTable(logical, f"code {kind}, part text, n int, primary key (code, part)")
    table.execute(f"insert into {table.name} select {value}, n, 0 from generate_series(1, 100) n")
    job = Job(table.builder({"code": str, "part": str, "n": int}).build())
    job.until(lambda: bool(job.records))
    for _ in range(6):
        job.checkpoint()
        table.execute(f"update {table.name} set n = n + 1")
        job.die()
        job.step(20)
    job.until(lambda: job.enumerator.snapshot()["phase"] == "changes")
    count = len(job.records)
    table.execute(f"delete from {table.name} where part = '7'")
    job.until(lambda: any(row.get_row_kind() is RowKind.DELETE for row in job.records))
    now = {(row[0], row[1]): row[2] for row in latest(job.records).values()}
    assert count >= 100
    assert now == {(code, part): n for code, part, n in table.rows("concat(code), part, n")}
    job.close()
    table.forget()


def test_initial_rows_come_in_batches_of_the_requested_size(table: CapturedTable) -> None:
    table.execute(f"insert into {table.name} select n, repeat('x', 50000) from generate_series(1, 300) n")
    reader = table.builder().build().create_reader(ReaderContext(0, 1, "in"))
    job = Job(table.builder().build(), parallelism=1)
    while not job.splits:
        for split in job.enumerator.discover():
            job._open(split)
    [(split, _)] = job.splits.values()
    rows, counts = reader.open_split(split, None), []
    while not rows.finished:
        batch = rows.read(ReadBounds(max_bytes=1_000_000))
        counts.append(0 if batch is None else len(batch.rows().values))
    assert sum(counts) == 300
    assert max(counts) <= 22
    assert len(counts) <= 17
    job.close()


def test_names_with_a_percent_sign_are_read(logical: PostgresServer) -> None:
    table = CapturedTable(logical, '"id_%" text primary key, "vat_%s" int')
    table.execute(f"insert into {table.name} values ('a', 1), ('b', 2)")
    job = Job(table.builder({"id_%": str, "vat_%s": int}).build())
    job.until(lambda: len(job.records) == 1 or job.step(1) > 0)
    job.checkpoint()
    job.die()
    job.until(lambda: len(job.records) == 2)
    assert [tuple(row) for row in job.records] == [("a", 1), ("b", 2)]
    job.close()
    table.forget()


def latest(records: list[Any]) -> dict[Any, Any]:
    """Return the last row by both columns of the key. Each change must fit the row before."""
    found: dict[Any, Any] = {}
    for row in records:
        kind = row.get_row_kind()
        assert ((row[0], row[1]) in found) == (kind is not RowKind.INSERT), row
        if kind is RowKind.DELETE:
            del found[row[0], row[1]]
        else:
            found[row[0], row[1]] = row
    return found


def test_a_transaction_that_is_open_at_the_start_is_read_once(
    table: CapturedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server creates a slot when all open transactions have ended. A new transaction is then in the rows or in the changes."""
    monkeypatch.setattr(enumerator, "_SLOT_WAITS_MS", 200)
    job = Job(table.builder().build())
    with psycopg.connect(table.server.conninfo) as late:
        late.execute(f"insert into {table.name} values (1, 'late')")
        with pytest.raises(SourceError, match="was not created within 0 s, because the server waits") as caught:
            job.step()
        assert "pg_stat_activity" in caught.value.remedy
    assert Job(table.builder().build()).step() == 1
    later = Job(table.builder().set_slot_name(f"{table.name}_2").build())
    monkeypatch.setattr(CdcEnumerator, "_create_slot", with_one_open(table, CdcEnumerator._create_slot))
    for _ in range(20):
        assert later.step() == 0
    assert later.enumerator.snapshot()["phase"] == "waiting"
    OPEN.pop().commit()
    later.until(lambda: sorted(row[0] for row in later.records) == [1, 2])
    later.until(lambda: "changes" in later.splits)
    for _ in range(5):
        later.step()
    assert len(later.records) == 2
    later.close()
    table.execute("select pg_drop_replication_slot(%s)", [f"{table.name}_2"])


OPEN: list[psycopg.Connection[Any]] = []


def with_one_open(table: CapturedTable, create: Any) -> Any:
    """Create the slot, and begin a transaction before anything is read."""

    def creating(self: CdcEnumerator, connection: Any) -> str:
        lsn: str = create(self, connection)
        OPEN.append(psycopg.connect(table.server.conninfo))
        OPEN[0].execute(f"insert into {table.name} values (2, 'open')")
        return lsn

    return creating


def test_a_job_may_start_at_new_changes_and_create_its_publication(logical: PostgresServer) -> None:
    table = CapturedTable(logical)
    table.execute(f"drop publication {table.name}")
    table.add(1)
    source = table.builder().set_creates_publication(True).set_startup("latest").build()
    source.validate()
    job = Job(source)
    job.until(lambda: "changes" in job.splits)
    table.add(2)
    job.until(lambda: bool(job.records))
    assert kinds(job.records) == ["+I (2, 'k2', 0)"]
    job.close()
    table.forget()


def test_initial_rows_are_those_of_the_publication(logical: PostgresServer) -> None:
    table = CapturedTable(logical)
    table.execute(f"drop publication {table.name}")
    table.execute(f"create publication {table.name} for table {table.name} (id, n) where (id % 2 = 0)")
    table.add(1, 2, 3, 4)
    job = Job(table.builder(None).build())
    job.until(lambda: "changes" in job.splits)
    table.add(5, 6)
    job.until(lambda: len(job.records) == 3)
    assert sorted(tuple(row.as_dict().items()) for row in job.records) == [(("id", n), ("n", 0)) for n in (2, 4, 6)]
    job.close()
    table.forget()


def test_partitions_are_read_as_their_parent_table(logical: PostgresServer) -> None:
    table = CapturedTable(logical, "id bigint primary key, key text, n bigint default 0) partition by range (id")
    for low in (0, 10):
        table.execute(
            f"create table {table.name}_{low} partition of {table.name} for values from ({low}) to ({low + 10})"
        )
    with pytest.raises(SourceError, match="is partitioned") as caught:
        table.builder().build().validate()
    table.execute(caught.value.remedy)
    table.add(1, 11)
    job = Job(table.builder().build())
    job.until(lambda: "changes" in job.splits)
    table.execute(f"update {table.name} set id = 12 where id = 1")
    job.until(lambda: applied(job.records) == [(11, "k2", 0), (12, "k1", 0)])
    job.close()
    table.forget()
