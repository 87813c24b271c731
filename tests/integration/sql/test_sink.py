"""Rows into a table: upserts, one transaction for each checkpoint."""

from __future__ import annotations

import datetime
import decimal
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.common.errors import RecordFormatError, SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.tables import commits
from penstock.datastream.connectors.sql import DeliveryGuarantee, SqlSink
from tests.committables import settled
from tests.integration.sql.tables import Table
from tests.integration.sql.test_source import read

AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
BOTH = pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE])


def ends(sink: SqlSink, job: str) -> tuple[Any, Any]:
    committer = sink.create_committer({}, job_id=job, uid="sink")
    return sink.create_writer(WriterContext(0, 2, 1, "sink", job), []), committer


def voted(writer: Any, checkpoint: int, *ids: int) -> list[Any]:
    writer.write([{"id": n, "key": f"k{n % 3}"} for n in ids], None, 0)
    return settled(writer.prepare_commit(checkpoint))


def write(sink: SqlSink, job: str, values: list[Any], checkpoint: int = 1) -> None:
    writer, committer = ends(sink, job)
    writer.write(values, None, 0)
    votes = settled(writer.prepare_commit(checkpoint))
    if committer is not None:
        committer.commit(votes)


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


@BOTH
def test_rows_replace_those_with_their_key_and_the_last_one_wins(table: Table, guarantee: DeliveryGuarantee) -> None:
    sink = table.sink(key=["id"], guarantee=guarantee)
    sink.validate()
    for checkpoint, rows in enumerate([[(1, "a"), (2, "b"), (1, "c")], [(2, "d"), (3, "e"), (2, "f")]], 1):
        write(sink, table.name, rows, checkpoint)
    assert table.rows() == [(1, "c"), (2, "f"), (3, "e")]


@BOTH
def test_rows_with_only_key_columns_exist_once(table: Table, guarantee: DeliveryGuarantee) -> None:
    sink = table.sink({"id": int}, key=["id"], guarantee=guarantee)
    sink.validate()
    for checkpoint in (1, 2):
        write(sink, table.name, [{"id": 5}, {"id": 5}, {"id": 6}], checkpoint)
    assert table.ids() == [5, 6]


@BOTH
def test_deletes_of_a_changelog_delete_rows(table: Table, guarantee: DeliveryGuarantee) -> None:
    sink = table.sink(key=["id"], deletes=True, guarantee=guarantee)
    sink.validate()

    def change(checkpoint: int, *changes: tuple[RowKind, int, str | None]) -> None:
        write(sink, table.name, [Row.of_kind(kind, id=n, key=key) for kind, n, key in changes], checkpoint)

    table.add(7)
    change(1, (RowKind.INSERT, 1, "a"), (RowKind.INSERT, 2, "b"), (RowKind.INSERT, 3, "c"), (RowKind.DELETE, 3, None))
    change(2, (RowKind.UPDATE_BEFORE, 1, "a"), (RowKind.UPDATE_AFTER, 1, "A"), (RowKind.DELETE, 2, None))
    change(3, (RowKind.DELETE, 1, None), (RowKind.INSERT, 1, "again"), (RowKind.DELETE, 99, None))
    assert table.rows() == [(1, "again"), (7, "k1")]


@BOTH
def test_many_rows_come_in_one_checkpoint(table: Table, guarantee: DeliveryGuarantee) -> None:
    write(table.sink(key=["id"], guarantee=guarantee), table.name, [(n % 20_000, f"k{n}") for n in range(25_000)])
    assert table.execute(f"select count(*), min(id), max(id) from {table.name}") == [(20_000, 0, 19_999)]
    assert table.execute(f"select * from {table.name} where id in (0, 9999) order by id") == [
        (0, "k20000"),
        (9999, "k9999"),
    ]


def test_many_rows_are_deleted_in_one_checkpoint(table: Table) -> None:
    table.add(*range(1, 3000))
    gone = [Row.of_kind(RowKind.DELETE, id=n, key=None) for n in range(2, 3000)]
    write(table.sink(key=["id"], deletes=True), table.name, gone)
    assert table.ids() == [1]


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
    writer.close()


def test_a_second_committer_waits_for_a_running_commit(table: Table) -> None:
    sink = table.sink()
    writer, zombie = ends(sink, table.name)
    _, successor = ends(sink, table.name)
    votes = voted(writer, 1, 1)
    carry_out = zombie._write
    written, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        carry_out(*arguments)
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


def test_many_concurrent_committers_of_the_same_checkpoints_write_each_once(table: Table) -> None:
    sink = table.sink()
    writer, _ = ends(sink, table.name)
    votes = [voted(writer, number, *range(number * 10, number * 10 + 10)) for number in range(1, 11)]
    failed: list[BaseException] = []

    def commit() -> None:
        committer = ends(sink, table.name)[1]
        try:
            for vote in votes:
                committer.commit(vote)
        except BaseException as error:
            failed.append(error)
        finally:
            committer.close()

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert table.ids() == list(range(10, 110))


def test_a_commit_that_breaks_off_in_the_middle_leaves_nothing(table: Table) -> None:
    writer, committer = ends(table.sink(), table.name)
    votes = voted(writer, 1, *range(1000))
    carry_out = committer._write

    def torn(*arguments: Any) -> None:
        carry_out(*arguments)
        raise RuntimeError("as ordered")

    committer._write = torn
    with pytest.raises(RuntimeError):
        committer.commit(votes)
    assert table.ids() == []
    committer._write = carry_out
    committer.commit(votes)
    assert table.ids() == list(range(1000))


@BOTH
def test_the_error_for_a_row_that_the_database_rejects_shows_its_values_and_no_row_is_written(
    url: str, guarantee: DeliveryGuarantee
) -> None:
    table = Table(url, "id bigint primary key, `key` varchar(20), check (id <> 700)")
    rows = [{"id": n, "key": f"k{n % 3}"} for n in range(1000)]
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"(?is)such as \{'id': 700, 'key': 'k1'\}.*constraint.*filter such rows"):
        write(table.sink(guarantee=guarantee), table.name, rows)
    assert time.monotonic() - began < 10
    assert table.ids() == []


def test_a_row_with_an_existing_key_is_an_error(table: Table) -> None:
    table.add(3)
    writer, committer = ends(table.sink(), table.name)
    with pytest.raises(SinkError, match=r"such as \{'id': 3, 'key': 'k0'\}"):
        committer.commit(voted(writer, 1, 1, 2, 3, 4))
    assert table.ids() == [3]


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
    left = table.execute(f"select checkpoint from {commits.NOTES} where app like ? order by 1", f"%{table.name}%")
    assert left == [(-1,), (6,), (7,), (8,)]
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
    clock: datetime.time
    raw: bytes
    about: dict[str, int]
    note: str | None


COLUMNS = (
    "id bigint primary key, flag boolean, x double, price decimal(9, 2), day date, at datetime(6), clock time(6), raw longblob, "
    "about json, note longtext"
)
AT = datetime.datetime(2013, 7, 1, 12, 0, 0, 123456)
FIRST = Everything(
    1,
    True,
    0.1,
    decimal.Decimal("1.50"),
    AT.date(),
    AT,
    AT.time(),
    b"\x00\xff'\\",
    {"n": 1},
    "😀 'ä' \\ %s ? \n\0".strip("\0"),
)


def everything(url: str) -> Table:
    columns = COLUMNS
    if url.startswith("postgresql"):
        columns = (
            columns.replace("double", "double precision")
            .replace("datetime(6)", "timestamp")
            .replace("longblob", "bytea")
            .replace("longtext", "text")
        )
    return Table(url, columns)


@BOTH
def test_values_of_all_types_come_back(url: str, guarantee: DeliveryGuarantee) -> None:
    table = everything(url)
    large = FIRST._replace(id=3, note="😀" * 250_000, raw=bytes(range(256)) * 4096)
    rows = [FIRST, Everything(2, *[None] * 9), large]  # type: ignore[arg-type]
    sink = table.sink(Everything, guarantee=guarantee)
    sink.validate()
    write(sink, table.name, rows)
    assert table.source(Everything).validate() is None

    assert read(table.source(Everything)) == rows


def test_values_of_numpy_come_as_plain_ones(url: str) -> None:
    table = everything(url)
    at = np.datetime64(AT)
    value = {**FIRST._asdict(), "id": np.int64(1), "x": np.float64(0.1), "flag": np.bool_(True), "at": at}
    write(table.sink(Everything), table.name, [value])
    assert read(table.source(Everything)) == [FIRST]


def test_invalid_numbers_fail_before_they_are_staged(url: str) -> None:
    if url.startswith("postgresql"):
        return  # this database supports NaN
    table = everything(url)
    writer, _ = ends(table.sink({"id": int, "x": float}), table.name)
    with pytest.raises(RecordFormatError, match="field 'x'"):
        writer.write([(1, 0.5), (2, float("nan"))], None, 0)


def test_a_session_is_in_utc_and_waits_for_no_lock_forever(table: Table) -> None:
    """Check this also in the connections that commit, and after a rollback."""
    server = table.sink().server
    for autocommit in (True, False):
        connection = server.connect(SinkError, autocommit=autocommit)
        connection.rollback()
        if table.url.startswith("postgresql"):
            found = [connection.exec_driver_sql(f"show {name}").scalar() for name in ("timezone", "lock_timeout")]
            assert found == ["UTC", "20s"]
        elif table.url.startswith("mysql"):
            found = connection.exec_driver_sql("select @@time_zone, @@innodb_lock_wait_timeout").one()
            assert tuple(found) == ("+00:00", 20)
        else:
            assert connection.exec_driver_sql("pragma busy_timeout").scalar() == 20_000
        connection.close()


@pytest.mark.postgres
@pytest.mark.parametrize("value", ["a\0b", {"text": ["a\0b"]}])
def test_text_that_postgres_cannot_store_is_refused_before_it_is_staged(postgres: Any, value: Any) -> None:
    table = Table(postgres.conninfo, "id bigint primary key, `key` text")
    kind = str if isinstance(value, str) else dict[str, list[str]]
    rows, committer = ends(table.sink({"id": int, "key": kind}), table.name)
    with pytest.raises(RecordFormatError, match="character NUL"):
        rows.write([{"id": 1, "key": value}], None, 0)
    text = r"a\u0000b"
    rows.write([{"id": 2, "key": text if kind is str else {"text": [text]}}], None, 0)
    committer.commit(settled(rows.prepare_commit(1)))
    assert table.ids() == [2]


@BOTH
def test_names_with_percent_signs_are_unchanged(url: str, guarantee: DeliveryGuarantee) -> None:
    name = "a%b" if url.startswith("sqlite") else "a%%b"  # the driver's notation in a separate statement
    table = Table(url, f"id bigint primary key, `{name}` varchar(20)")
    sink = table.sink({"id": int, "a%b": str}, key=["id"], deletes=True, guarantee=guarantee)
    sink.validate()
    write(sink, table.name, [Row(id=1, **{"a%b": "100 %"}), Row(id=2, **{"a%b": "%s"})])
    assert table.rows() == [(1, "100 %"), (2, "%s")]
    assert read(table.source({"id": int, "a%b": str}, record="tuple")) == [(1, "100 %"), (2, "%s")]
    table.execute(f"drop table {table.name}")
