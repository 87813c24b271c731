"""A table's changes through keyed state into another table. Both end up equal, under any fault at any time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.integration.postgres.cdc.captures import CapturedTable
from tests.integration.postgres.tables import Table
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres
PATIENCE_S = 90


class Mirror:
    """A job that is started repeatedly."""

    def __init__(self, folder: Path, table: Table, mirror: Table) -> None:
        self._arguments = [str(folder), table.server.conninfo, table.name, mirror.name]
        self._log = folder / "job.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, parallelism: int) -> None:
        found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        program = [
            sys.executable,
            "-m",
            "tests.integration.postgres.cdc.mirrored_job",
            *self._arguments,
            str(parallelism),
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(program, stdout=log, stderr=log, env=found)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.mark.parametrize("seed", [1])
def test_a_mirror_ends_up_equal_under_any_failure(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with PostgresServer(tmp_path / "postgres", is_logical=True) as server:
        table, mirror = CapturedTable(server), Table(server, "id bigint primary key, key text, n bigint")
        table.load(chance, 300)
        job = Mirror(tmp_path, table, mirror)
        job.start(2)
        try:
            for fault in ("kill", "server", "kill", "pause", "kill"):
                load = threading.Thread(target=table.load, args=(random.Random(chance.random()), 300))
                load.start()
                time.sleep(chance.uniform(1.5, 3))
                if fault == "kill":
                    job.kill()
                    job.start(chance.randrange(1, 4))
                    load.join()
                elif fault == "server":
                    load.join()
                    server.kill()
                    server.restart()
                else:
                    load.join()
                    server.pause()
                    time.sleep(1)  # the duration of the pause
                    server.resume()
            deadline = time.monotonic() + PATIENCE_S
            while mirror.execute(f"select * from {mirror.name} order by 1") != table.rows():
                assert job.process is not None
                assert job.process.poll() is None, (tmp_path / "job.log").read_text()[-3000:]
                assert time.monotonic() < deadline, difference(table, mirror)
                time.sleep(0.1)
        finally:
            job.kill()


def difference(table: Table, mirror: Table) -> str:
    found = table.execute(
        f"select 'missing', m.* from (select * from {table.name} except select * from {mirror.name}) m union all "
        f"select 'too many', m.* from (select * from {mirror.name} except select * from {table.name}) m"
    )
    return "\n".join(map(str, found))
