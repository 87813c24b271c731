"""SQL on a session cluster: `penstock sql -m URL` and `penstock run -m URL FILE.sql`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.session_process import SessionProcess

pytestmark = [pytest.mark.sql, pytest.mark.spark]
TABLES = """
CREATE TABLE few (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '3');
CREATE TABLE written (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/out');
"""


@pytest.fixture
def cluster(flink, tmp_path):
    found = SessionProcess(tmp_path)
    found.start()
    yield found
    found.stop()


def test_statements_and_files_run_on_the_cluster(cluster, tmp_path):
    (tmp_path / "token").write_text(cluster.token)
    tables = tmp_path / "tables.sql"
    tables.write_text(TABLES.format(folder=tmp_path))

    def penstock(*arguments):
        environment = {**os.environ, "PENSTOCK_TOKEN_FILE": str(tmp_path / "token")}
        command = [sys.executable, "-m", "penstock.cli", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def written():
        files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and not path.name.startswith(".")]
        return sorted(json.loads(line)["n"] for path in files for line in path.read_text().splitlines())

    output = penstock(
        "sql", "-m", cluster.url, "-i", tables, "-e", "SELECT n * 2 FROM few; INSERT INTO written SELECT n FROM few;"
    )
    assert re.findall(r"\| \+I \| +(\d) \|", output) == ["2", "4", "6"]
    job = re.findall(r"JobID (\w+)", output)[0]
    cluster.wait_for(job, "FINISHED")
    assert written() == [1, 2, 3]
    file = tmp_path / "job.sql"
    file.write_text(tables.read_text() + "INSERT INTO written SELECT n + 10 FROM few;")
    penstock("run", "-m", cluster.url, file)
    assert written() == [1, 2, 3, 11, 12, 13]
