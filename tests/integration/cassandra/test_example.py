"""The example works as its page describes, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.datastream.connectors.cassandra import ClusterBuilder
from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tools.servers.base.server import HOST
from tools.servers.cassandra import CassandraServer

pytestmark = pytest.mark.cassandra
EXAMPLE = EXAMPLES / "cassandra_totals"


def test_totals_follow_the_files_of_readings(cassandra: CassandraServer, tmp_path: Path) -> None:
    folder = tmp_path / "readings"
    known = {**os.environ, "CASSANDRA_HOST": HOST, "CASSANDRA_PORT": str(cassandra.port)}

    def run_example(*arguments: str) -> str:
        command = [sys.executable, str(EXAMPLE / "readings.py"), *arguments]
        return subprocess.run(command, env=known, check=True, capture_output=True, text=True).stdout

    run_example("write", str(folder), "300")
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("cassandra_totals").build(env, str(folder), ClusterBuilder(HOST, cassandra.port))
    master = started(env)

    def read() -> int:
        return sum(row.readings for row in cassandra.execute("SELECT readings FROM weather.rain"))

    until(lambda: read() == 300, master)
    run_example("write", str(folder), "200")
    until(lambda: read() == 500, master)
    master.request(Operation("cancel"))
    master.wait(30)
    shown = run_example("show")
    assert sum(int(line.split()[1]) for line in shown.splitlines()) == 500
    assert [line.split(":")[0] for line in shown.splitlines()] == ["north", "east", "south", "west"]


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
