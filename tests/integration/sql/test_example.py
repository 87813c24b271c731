"""The example works as its page describes, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.sql.tables import run
from tools.servers.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb
EXAMPLE = EXAMPLES / "mariadb_totals"
WANTED = (
    "select customer, cast(count(*) as int), cast(sum(cents) as int) from orders group by customer order by customer"
)


def test_totals_are_those_of_the_orders(mariadb: MariaDbServer, tmp_path: Path) -> None:
    run(mariadb.url, "create database shop")
    url = mariadb.url_of("admin", mariadb.password, "shop")
    for statement in (EXAMPLE / "shop.sql").read_text().split(";\n"):
        if statement.strip():
            run(url, statement)
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("mariadb_totals").build(env, url, settle=timedelta(milliseconds=100))
    master = started(env)
    subprocess.run([sys.executable, str(EXAMPLE / "write_orders.py"), url, "300"], check=True, env=dict(os.environ))
    wanted = run(url, WANTED)
    assert len(wanted) == 9
    until(lambda: run(url, "select * from totals order by customer") == wanted, master)
    master.request(Operation("cancel"))
    master.wait(30)


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
