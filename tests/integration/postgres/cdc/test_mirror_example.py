"""The program that mirrors a table in Iceberg works on a real server and real Iceberg files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


def test_the_mirror_equals_the_table_after_random_changes(tmp_path: Path) -> None:
    module = job_of("table_mirror")
    properties = module.catalog_of(str(tmp_path / "lake"), "")
    catalog = load_catalog(**properties)
    chance = random.Random(1)

    def mirrored() -> list[tuple[Any, ...]]:
        try:
            found = catalog.load_table(module.MIRROR).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return sorted(tuple(row[name] for name in module.COLUMNS) for row in found)

    def wanted(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
        """Return the rows as the server itself hides their addresses."""
        hidden = "left(encode(sha256(email::bytea), 'hex'), 12)"
        return connection.execute(f"select id, name, {hidden}, country from customers order by id").fetchall()

    with (
        PostgresServer(tmp_path / "postgres", is_logical=True) as server,
        psycopg.connect(server.conninfo, autocommit=True) as connection,
    ):
        connection.execute((EXAMPLES / "table_mirror" / "customers.sql").read_text())
        insert = "insert into customers select n, 'c' || n, 'c' || n || '@example.com', 'NO' from generate_series(%s::int, %s::int) n"
        connection.execute(insert, [1, 60])
        env = environment(tmp_path)
        env.set_parallelism(2)
        module.build(env, server.conninfo, "", properties)
        master = started(env)
        until(lambda: mirrored() == wanted(connection), master)  # the rows at the start
        connection.execute(insert, [61, 90])
        for _ in range(40):
            number = chance.randrange(1, 91)
            connection.execute("update customers set name = name || '!' where id = %s", [number])
            connection.execute("update customers set email = null where id = %s", [chance.randrange(1, 91)])
            connection.execute("delete from customers where id = %s", [chance.randrange(1, 91)])
        rows = wanted(connection)
        assert 40 < len(rows) < 90
        assert any("!" in row[1] for row in rows)
        until(lambda: mirrored() == rows, master)
        master.request(Operation("cancel"))
        master.wait(30)
