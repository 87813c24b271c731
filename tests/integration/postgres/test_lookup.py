"""Look up the rows of a table for each value of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.postgres import PostgresLookup
from tests.in_process import environment, run
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
SEEN: list[Any] = []
"""The records of the job's sink. The job runs with its own copy of the sink, because programs are serialized."""


def see(value: Any) -> None:
    SEEN.append(value)


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[Table]:
    found = Table(postgres)
    found.add(1, 2, 3)
    yield found
    found.execute(f"drop table {found.name}")


def names(value: Any, rows: list[Any]) -> list[Any]:
    return [(value, sorted(row["key"] for row in rows))]


def lookup(table: Table, **options: Any) -> PostgresLookup:
    given = {"column": "id", "key": lambda value: value, "join": names, **options}
    return PostgresLookup(table.server.conninfo, table.name, {"id": int, "key": str}, **given)


def looked_up(function: PostgresLookup, *values: Any) -> list[Any]:
    """Look up all values at the same time."""

    async def ask() -> list[Any]:
        return await asyncio.gather(*map(function.async_invoke, values))

    return [result for results in asyncio.run(ask()) for result in results]


def test_values_get_the_rows_of_their_keys(table: Table) -> None:
    function = lookup(table)
    function.open(None)
    assert looked_up(function, 1, 7, None, 2, 1) == [(1, ["k1"]), (7, []), (None, []), (2, ["k2"]), (1, ["k1"])]


def test_a_column_that_is_not_unique_gives_all_rows(table: Table) -> None:
    table.add(4)
    function = lookup(table, column="key", join=lambda value, rows: sorted(row["id"] for row in rows))
    function.open(None)
    assert looked_up(function, "k1") == [1, 4]


@pytest.mark.parametrize(
    ("kind", "stored", "key"),
    [
        ("uuid", "550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000"),
        ("numeric", "1.50", 1.5),
        ("timestamptz", "2020-01-01T12:00:00+02:00", "2020-01-01 10:00:00+00:00"),
        ("boolean", "true", True),
        ("char(5)", "a", "a"),
    ],
)
def test_keys_are_compared_as_the_column_compares_them(
    postgres: PostgresServer, kind: str, stored: str, key: Any
) -> None:
    table = Table(postgres, f'"the %s" {kind} primary key, key text')
    table.execute(f"insert into {table.name} values ('{stored}', 'found')")
    function = PostgresLookup(
        postgres.conninfo, table.name, {"key": str}, column="the %s", key=lambda value: value, join=names
    )
    function.open(None)
    assert looked_up(function, key) == [(key, ["found"])]


def test_answers_are_cached_for_their_ttl(table: Table) -> None:
    believes, asks = lookup(table), lookup(table, ttl=0)
    for function in (believes, asks):
        function.open(None)
        assert looked_up(function, 1, 9) == [(1, ["k1"]), (9, [])]
    table.execute(f"update {table.name} set key = 'new' where id = 1")
    assert looked_up(believes, 1) == [(1, ["k1"])]
    assert looked_up(asks, 1) == [(1, ["new"])]


def test_the_cache_keeps_at_most_the_configured_number_of_answers(table: Table) -> None:
    function = lookup(table, most_kept=2)
    function.open(None)
    looked_up(function, *range(10))
    assert len(function._kept) == 2


def test_many_keys_go_in_few_queries(table: Table) -> None:
    table.add(*range(10, 2000))
    function = lookup(table)
    function.open(None)
    ask, queries = function._request, []

    async def counted(connection: Any, keys: list[str]) -> Any:
        queries.append(len(keys))
        return await ask(connection, keys)

    function._request = counted  # type: ignore[method-assign]
    assert len(looked_up(function, *range(10, 2000))) == 1990
    assert len(queries) == 4


def test_a_wrong_setting_is_an_error_when_the_function_opens(table: Table) -> None:
    with pytest.raises(SourceError, match="has no column 'nothing'"):
        lookup(table, column="nothing").open(None)
    with pytest.raises(InvalidJob, match="no column 'celsius'"):
        PostgresLookup(table.server.conninfo, table.name, {"celsius": float}, column="id", key=str, join=names).open(
            None
        )
    function = lookup(table)
    function.open(None)
    with pytest.raises(SourceError, match="invalid input syntax"):
        looked_up(function, "no number")


def test_a_stream_is_enriched_in_a_job(table: Table, tmp_path: Path) -> None:
    env = environment(tmp_path)
    stream = env.from_collection([1, 2, 3, 9] * 50)
    rich = AsyncDataStream.unordered_wait(stream, lookup(table), 20_000, 100)
    SEEN.clear()
    rich.add_sink(see)
    run(env)
    assert sorted(SEEN)[::50] == [(1, ["k1"]), (2, ["k2"]), (3, ["k0"]), (9, [])]
