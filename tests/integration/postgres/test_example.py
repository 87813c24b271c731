"""The example works as its page describes, on a real server."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
EXAMPLE = EXAMPLES / "order_totals"
WANTED = "select customer, count(*), sum(cents) from orders group by customer order by customer"


def test_totals_follow_the_orders(tmp_path: Path) -> None:
    chance = random.Random(1)
    with (
        PostgresServer(tmp_path / "postgres", is_logical=True) as server,
        psycopg.connect(server.conninfo, autocommit=True) as connection,
    ):
        connection.execute((EXAMPLE / "shop.sql").read_text())
        connection.execute("insert into orders select n, 'c' || n % 9, n from generate_series(1, 100) n")
        env = environment(tmp_path)
        env.set_parallelism(2)
        job_of("order_totals").build(env, server.conninfo)
        master = started(env)
        for _ in range(100):
            number = chance.randrange(1, 101)
            connection.execute("update orders set cents = cents + 7 where id = %s", [number])
            connection.execute("update orders set customer = 'c' || id %% 4 where id = %s", [number // 2])
            connection.execute("delete from orders where id = %s or customer = 'c8'", [number // 3])
        wanted = connection.execute(WANTED).fetchall()
        until(lambda: connection.execute("select * from totals order by customer").fetchall() == wanted, master)
        master.request(Operation("cancel"))
        master.wait(30)


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
