"""Read tables by ranges of a key, and follow tables that grow."""

from __future__ import annotations

import datetime
import decimal
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.datastream.connectors.postgres import PostgresSource
from tests.integration.postgres.reading import BOUNDS, opened, take
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[Table]:
    found = Table(postgres)
    yield found
    found.execute(f"drop table {found.name}")


def read(source: Any) -> list[Any]:
    """Read with a new reader for every few records, as if each reader ran in a separate process."""
    source.validate()
    rows = []
    for split in source.create_enumerator().discover():
        position: Any = None
        finished = False
        while not finished:
            reader = opened(source, split, position)
            batch = reader.read(BOUNDS)
            rows += [] if batch is None else batch.rows().values
            position, finished = reader.position, reader.finished
    return rows


@pytest.mark.parametrize("splits", [1, 4, 100])
def test_every_row_is_read_once_from_any_position(table: Table, splits: int) -> None:
    ids = [-5, 0, 1, 2, *range(10, 40), 1000]
    table.add(*ids)
    assert [row["id"] for row in read(table.source(splits=splits))] == ids
    assert read(table.source({"key": str}, record="tuple"))[-1] == ("k1",)


def test_an_empty_table_ends(table: Table) -> None:
    assert read(table.source()) == []


def test_keys_that_are_not_numbers_are_read_in_order(postgres: PostgresServer) -> None:
    table = Table(
        postgres,
        "id uuid primary key default gen_random_uuid(), at timestamptz not null unique, n int, about jsonb, price numeric",
    )
    table.execute(
        f"insert into {table.name} (at, n, about, price) select timestamptz '2013-07-01Z' + n * interval '1 s' / 3, n, '[1]', 1.5 from generate_series(1, 30) n"
    )
    fields = {"n": int, "about": str, "price": float}
    rows = read(table.source(fields, key="at"))
    assert [row["n"] for row in rows] == list(range(1, 31))
    assert rows[0] == {"n": 1, "about": "[1]", "price": 1.5}
    assert len(read(table.source({"id": str}))) == 30


def test_a_source_follows_a_growing_table_across_restarts(table: Table) -> None:
    table.add(1, 2)
    source = table.source(follow=10)
    assert not source.bounded
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    seen = take(reader)
    for start in range(10, 60, 10):
        assert take(reader) == []
        table.add(*range(start, start + 9))
        seen += take(reader)
        if start % 20:
            reader = opened(source, split, reader.position)
        seen += take(reader)
    assert seen == table.ids()


def test_a_transaction_that_commits_late_is_not_skipped(table: Table) -> None:
    source = table.source(follow=10)
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    with psycopg.connect(table.server.conninfo) as late:
        late.execute(f"insert into {table.name} values (1, 'late')")
        table.add(2)
        assert take(reader) == []
        assert take(reader) == []
        late.commit()
    assert take(reader) == [1, 2]


def test_a_late_transaction_whose_number_was_assigned_last_is_not_skipped(table: Table) -> None:
    """The row's key was assigned before the other row's key. Its number was assigned when the row was written."""
    source = table.source(follow=10)
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    table.add(2)
    with psycopg.connect(table.server.conninfo) as late:
        late.execute(f"insert into {table.name} values (1, 'late')")
        assert take(reader) == []
        assert take(reader) == []
        late.commit()
    assert take(reader) == [1, 2]


def test_a_source_may_start_after_a_key_or_at_new_rows(table: Table) -> None:
    table.add(1, 2, 3)
    assert [row["id"] for row in read(table.source(start=1))] == [2, 3]
    source = table.source(follow=10, start="latest")
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    assert take(reader) == []
    table.add(4)
    assert take(reader) == [4]


def test_the_source_reconnects_after_a_lost_connection(table: Table) -> None:
    table.add(*range(20))
    source = table.source(splits=1)
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    seen = take(reader)
    table.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock'")
    while not reader.finished:
        seen += take(reader)
    assert seen == list(range(20))


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (int, "text"),
        (bool, "int"),
        (float, "date"),
        (bytes, "text"),
        (decimal.Decimal, "float8"),
        (datetime.time, "timestamp"),
    ],
)
def test_a_field_that_no_value_of_its_column_fits_is_refused_at_the_start(
    postgres: PostgresServer, field: Any, column: str
) -> None:
    table = Table(postgres, f"id bigint primary key, v {column}")
    with pytest.raises(InvalidJob, match="fields cannot be read"):
        table.source({"v": field}).validate()
    table.source({"v": str}).validate()


def test_names_and_types_that_need_quotes_are_read_in_pages(postgres: PostgresServer) -> None:
    name = f"T %s {uuid.uuid4().hex[:6]}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        connection.execute(f"""create type "{name}k" as enum ('a', 'b', 'c')""")
        connection.execute(f"""create table "{name}" ("the %s" "{name}k" primary key, "order" int)""")
        connection.execute(f"""insert into "{name}" values ('c', 3), ('a', 1), ('b', 2)""")
    fields = {"the %s": str, "order": int}
    source = PostgresSource(postgres.conninfo, name, fields, key="the %s")
    source.validate()
    (split,) = source.create_enumerator().discover()
    reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(split, None)
    found = []
    while not reader.finished:
        batch = reader.read(ReadBounds(1))
        found += [] if batch is None else batch.rows().values
    assert [row["order"] for row in found] == [1, 2, 3]


def test_a_source_that_cannot_read_is_an_error_at_the_start(table: Table) -> None:
    with pytest.raises(InvalidJob, match="no column 'celsius'"):
        table.source({"celsius": float}).validate()
    with pytest.raises(InvalidJob, match=r"key='key' .* is not a NOT NULL column"):
        table.source(key="key").validate()
    with pytest.raises(SourceError, match="table 'nothing' does not exist"):
        type(table.source())(table.server.conninfo, "nothing", {"id": int}, key="id").validate()
    with pytest.raises(InvalidJob):
        table.source(splits=2, follow=10)


def test_rows_from_many_writers_at_once_are_each_read_once(postgres: PostgresServer) -> None:
    table = Table(postgres, "id bigserial primary key, key text")

    def write() -> None:
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            for _ in range(100):
                connection.execute(f"insert into {table.name} (key) values ('a')")

    writers = [threading.Thread(target=write) for _ in range(4)]
    source = table.source(follow=1)
    [split] = source.create_enumerator().discover()
    reader, seen = opened(source, split), []
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen += take(reader)
    while len(seen) < 400 and (more := take(reader) or take(reader)):
        seen += more
    assert seen == table.ids()
    assert len(seen) == 400
