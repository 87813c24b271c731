"""Rows -> table, each exactly once, under any fault at any time. The table has no key that would hide a repeated row."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.sql.tables import Table
from tools.servers.mariadb import MariaDbServer

COUNT = 4_000
COLUMNS = "id bigint, `key` varchar(20)"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    """Yield a function that (re)starts the job with a parallelism. The job is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(table: Table, parallelism: int, moment: str = "", count: int = COUNT) -> subprocess.Popen[bytes]:
        arguments = [str(tmp_path), table.url, table.name, str(count), str(parallelism), moment]
        with (tmp_path / "job.log").open("ab") as log:
            program = [sys.executable, "-m", "tests.integration.sql.tabled_job", *arguments]
            process = subprocess.Popen(program, stdout=log, stderr=log, env=found)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


def forgetful(url: str) -> Table:
    """Return a table, and delete the notes, because the job has the same id in each test."""
    table = Table(url, COLUMNS)
    table.execute("drop table if exists penstock_commits")
    return table


@pytest.mark.parametrize(
    "moment", [pytest.param("before", marks=pytest.mark.slow), "within", pytest.param("after", marks=pytest.mark.slow)]
)
def test_a_job_killed_at_any_moment_of_a_commit_is_committed_once_by_its_successor(
    url: str, job: Any, moment: str
) -> None:
    table = forgetful(url)
    assert job(table, 2, moment).wait(90) == -signal.SIGKILL
    assert job(table, 1, moment).wait(90) == 0
    assert table.ids() == list(range(COUNT))


@pytest.mark.mariadb
def test_a_job_killed_repeatedly_at_random_loses_and_repeats_nothing(mariadb: MariaDbServer, job: Any) -> None:
    table, chance, count, killed = forgetful(mariadb.url), random.Random(5), 12_000, 0
    statement = f"select count(*) from {table.name}"
    for number in range(20):
        process = job(table, 1 + number % 2, count=count)
        [(seen,)] = table.execute(statement)
        while process.poll() is None and table.execute(statement) == [(seen,)]:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.3))  # kill the job at a random moment
        if killed == 4 or process.poll() is not None:  # a finished job would restart from the beginning
            break
        process.kill()
        process.wait()
        killed += 1
    assert process.wait(90) == 0
    assert killed >= 2
    assert table.ids() == list(range(count))


@pytest.mark.mariadb
def test_a_server_that_is_killed_or_paused_during_a_job_loses_and_repeats_nothing(tmp_path: Path, job: Any) -> None:
    with MariaDbServer(tmp_path / "mariadb") as server:
        table = Table(server.url, COLUMNS)
        process = job(table, 2)
        for fault in ("kill", "pause"):
            before = len(table.ids())
            while process.poll() is None and len(table.ids()) <= before:
                time.sleep(0.05)
            if fault == "kill":
                server.kill()
                server.restart()
            else:
                server.pause()
                time.sleep(1)  # the duration of the pause
                server.resume()
        assert process.wait(90) == 0
        assert table.ids() == list(range(COUNT))


class FailsOnce:
    """A map function that raises once, after some records."""

    count = 0

    def __call__(self, record: Any) -> Any:
        FailsOnce.count += 1
        if FailsOnce.count == 250:
            raise RuntimeError("as ordered")
        return record


def test_a_table_is_copied_into_another_one_across_a_failure_and_a_rescale(url: str, tmp_path: Path) -> None:
    reads, writes = Table(url), Table(url, COLUMNS)
    reads.add(*range(200))
    FailsOnce.count = 0
    env = environment(tmp_path)
    env.set_parallelism(1)
    env.set_max_parallelism(4)
    source = reads.source(follow=50, settle=20)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(FailsOnce()).uid("map").sink_to(writes.sink()).uid("out")
    master = started(env)
    for number in range(2, 6):
        reads.add(*range(number * 100, number * 100 + 100))
        until(lambda end=number * 100 + 100: writes.ids()[-1:] == [end - 1], master)
        if number == 3:
            master.request(Operation("rescale", {"parallelism": 3}))
    master.request(Operation("cancel"))
    master.wait(30)
    assert FailsOnce.count > 600
    assert writes.ids() == list(range(600))
