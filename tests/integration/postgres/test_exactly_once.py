"""Rows -> table, each exactly once, under any fault at any time. The table has no key that would hide a repeated row."""

from __future__ import annotations

import os
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
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
COUNT = 4_000
COLUMNS = "id bigint, key text"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    """Yield a function that (re)starts the job with a parallelism. The job is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(table: Table, parallelism: int, moment: str = "") -> subprocess.Popen[bytes]:
        arguments = [str(tmp_path), table.server.conninfo, table.name, str(COUNT), str(parallelism), moment]
        with (tmp_path / "job.log").open("ab") as log:
            program = [sys.executable, "-m", "tests.integration.postgres.tabled_job", *arguments]
            process = subprocess.Popen(program, stdout=log, stderr=log, env=found)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.parametrize("moment", ["before", "within", "after"])
def test_a_job_killed_at_any_moment_of_a_commit_is_committed_once_by_its_successor(
    postgres: PostgresServer, job: Any, moment: str
) -> None:
    table = Table(postgres, COLUMNS)
    forget_notes(table)
    assert job(table, 2, moment).wait(90) == -signal.SIGKILL
    assert job(table, 1, moment).wait(90) == 0
    assert table.ids() == list(range(COUNT))


def forget_notes(table: Table) -> None:
    """Delete the notes, because the job has the same id in each test."""
    table.execute("drop table if exists penstock_commits")


def test_a_server_that_is_killed_or_paused_during_a_job_loses_and_repeats_nothing(tmp_path: Path, job: Any) -> None:
    with PostgresServer(tmp_path / "postgres") as server:
        table = Table(server, COLUMNS)
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


def test_a_table_is_copied_into_another_one_across_a_failure_and_a_rescale(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    reads, writes = Table(postgres), Table(postgres, COLUMNS)
    reads.add(*range(200))
    FailsOnce.count = 0
    env = environment(tmp_path)
    env.set_parallelism(1)
    env.set_max_parallelism(4)
    stream = env.from_source(reads.source(follow=50), WatermarkStrategy.no_watermarks(), "in").uid("in")
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
