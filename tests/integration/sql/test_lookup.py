"""Look up the rows of a table for each value of a stream."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.sql import SqlLookup
from tests.in_process import environment, run
from tests.integration.sql.tables import Table

SEEN: list[Any] = []
"""The records of the job's sink. The job runs with its own copy of the sink, because programs are serialized."""


def see(value: Any) -> None:
    SEEN.append(value)


def names(value: Any, rows: list[Any]) -> list[Any]:
    return [(value, sorted(row["key"] for row in rows))]


def lookup(table: Table, **options: Any) -> SqlLookup:
    given = {"column": "id", "key": lambda value: value, "join": names, **options}
    return SqlLookup(table.url, table.name, {"id": int, "key": str}, **given)


def looked_up(function: SqlLookup, *values: Any) -> list[Any]:
    """Look up all values at the same time."""

    async def ask() -> list[Any]:
        return await asyncio.gather(*map(function.async_invoke, values))

    return [result for results in asyncio.run(ask()) for result in results]


def test_values_get_the_rows_of_their_keys(table: Table) -> None:
    table.add(1, 2, 3, 4)
    function = lookup(table)
    function.open(None)
    assert looked_up(function, 1, 7, None, 2, 1) == [(1, ["k1"]), (7, []), (None, []), (2, ["k2"]), (1, ["k1"])]
    function = lookup(table, column="key", join=lambda value, rows: sorted(row["id"] for row in rows))
    function.open(None)
    assert looked_up(function, "k1", "none") == [1, 4]


def test_answers_are_cached_for_their_ttl(table: Table) -> None:
    table.add(1)
    quote = "`key`" if "mysql" in table.url else "key"
    believes, asks = lookup(table), lookup(table, ttl=0)
    for function in (believes, asks):
        function.open(None)
        assert looked_up(function, 1, 9) == [(1, ["k1"]), (9, [])]
    table.execute(f"update {table.name} set {quote} = 'new' where id = 1")
    assert looked_up(believes, 1) == [(1, ["k1"])]
    assert looked_up(asks, 1) == [(1, ["new"])]


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


def test_a_wrong_setting_is_an_error(table: Table) -> None:
    with pytest.raises(SourceError, match="has no column 'nothing'"):
        lookup(table, column="nothing").open(None)
    with pytest.raises(InvalidJob, match="no column 'celsius'"):
        SqlLookup(table.url, table.name, {"celsius": float}, column="id", key=str, join=names).open(None)
    function = lookup(table)
    function.open(None)
    with pytest.raises(SourceError, match="the key 'no number' is not a number, but column 'id'"):
        looked_up(function, "no number")


@pytest.mark.mariadb
def test_the_lookup_reconnects_after_a_lost_connection(mariadb: Any) -> None:
    table = Table(mariadb.url)
    table.add(1, 2)
    function = lookup(table, ttl=0)
    function.open(None)

    async def ask() -> list[Any]:
        first = await function.async_invoke(1)
        for (number,) in table.execute(
            "select id from information_schema.processlist where id <> connection_id() and command = 'Sleep'"
        ):
            table.execute(f"kill {number}")
        return first + await function.async_invoke(2)

    assert asyncio.run(ask()) == [(1, ["k1"]), (2, ["k2"])]


def test_a_stream_is_enriched_in_a_job(table: Table, tmp_path: Path) -> None:
    table.add(1, 2, 3)
    env = environment(tmp_path)
    stream = env.from_collection([1, 2, 3, 9] * 50)
    rich = AsyncDataStream.unordered_wait(stream, lookup(table), 20_000, 100)
    SEEN.clear()
    rich.add_sink(see)
    run(env)
    assert sorted(SEEN)[::50] == [(1, ["k1"]), (2, ["k2"]), (3, ["k0"]), (9, [])]
