"""Read tables by ranges of a key, and follow tables that grow."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from tests.integration.sql.tables import Table

BOUNDS = ReadBounds(max_records=7)


def opened(source: Any, split: Split, position: Any = None) -> Any:
    travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(travelled, json.loads(json.dumps(position)))


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
            reader._reader.close()
    return rows


@pytest.mark.parametrize("splits", [1, 4, 100])
def test_every_row_is_read_once_from_any_position(table: Table, splits: int) -> None:
    ids = [-5, 0, 1, 2, *range(10, 40), 1000]
    table.add(*ids)
    assert [row["id"] for row in read(table.source(splits=splits))] == ids
    assert read(table.source({"key": str}, record="tuple"))[-1] == ("k1",)


def test_an_empty_table_ends(table: Table) -> None:
    assert read(table.source()) == []


def test_keys_that_are_not_numbers_are_read_in_order(url: str) -> None:
    kind = "timestamp(6)" if url.startswith("postgresql") else "datetime(6)"
    table = Table(
        url, f"id varchar(20) primary key, `at` {kind} not null unique, price decimal(20, 6) not null unique, n int"
    )
    moments = [datetime.datetime(2013, 7, 1) + datetime.timedelta(microseconds=333_333 * n) for n in range(30)]
    rows = ", ".join(f"('name {n:02}', '{at.isoformat(' ')}', {n}.500001, {n})" for n, at in enumerate(moments))
    table.execute(f"insert into {table.name} values {rows}")
    for key in ("id", "at", *([] if url.startswith("sqlite") else ["price"])):
        assert [row["n"] for row in read(table.source({"n": int}, key=key))] == list(range(30))
        assert [row["n"] for row in read(table.source({"n": int}, key=key, start=first_key(table, key, 9)))] == list(
            range(10, 30)
        )
    assert read(table.source({"at": datetime.datetime, "price": decimal.Decimal, "n": float}))[1] == {
        "at": moments[1],
        "price": decimal.Decimal("1.500001"),
        "n": 1.0,
    }


def first_key(table: Table, key: str, n: int) -> Any:
    return table.execute(f"select {key} from {table.name} where n = {n}")[0][0]


def take(reader: Any) -> list[int]:
    reader._next_poll = 0.0
    batch = reader.read(BOUNDS)
    return [] if batch is None else [row["id"] for row in batch.rows().values]


def test_a_source_follows_a_growing_table_across_restarts(table: Table) -> None:
    table.add(1, 2)
    source = table.source(follow=10, settle=0)
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


def test_rows_are_read_when_their_key_has_been_there_for_some_time(table: Table) -> None:
    """This delay does not skip a transaction that commits a smaller key within that time."""
    source = table.source(follow=10, settle=60_000)
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    table.add(2)
    assert take(reader) == []
    table.add(1, 3)
    assert take(reader) == []
    assert reader.next_record_at() is not None
    reader._noted[0] = (reader._noted[0][0] - 60.0, reader._noted[0][1])
    assert take(reader) == [1, 2]
    assert take(reader) == []


def test_a_source_may_start_after_a_key_or_at_new_rows(table: Table) -> None:
    table.add(1, 2, 3)
    assert [row["id"] for row in read(table.source(start=1))] == [2, 3]
    source = table.source(follow=10, settle=0, start="latest")
    [split] = source.create_enumerator().discover()
    reader = opened(source, split)
    assert take(reader) == []
    table.add(4)
    assert take(reader) == [4]


def test_a_source_that_cannot_read_is_an_error_at_the_start(table: Table) -> None:
    with pytest.raises(InvalidJob, match="no column 'celsius'"):
        table.source({"celsius": float}).validate()
    with pytest.raises(InvalidJob, match=r"key='key' .* is not a NOT NULL column"):
        table.source(key="key").validate()
    with pytest.raises(SourceError, match="table 'nothing' does not exist"):
        type(table.source())(table.url, "nothing", {"id": int}, key="id").validate()
    with pytest.raises(InvalidJob):
        table.source(splits=2, follow=10)
