"""`penstock sql` with Flink's planner, on this machine and on a session cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.sql.completion import SqlCompleter
from penstock.cli.sql.pager import Pager
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.table import TableEnvironment
from penstock.table.client.client_session import ClientSession
from tests.in_process import InProcess, environment

pytestmark = pytest.mark.sql
TABLES = """
CREATE TABLE numbers (n BIGINT, v AS MOD(n, 2)) WITH ('connector' = 'datagen', 'rows-per-second' = '100');
CREATE TABLE few (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '3');
CREATE TABLE printed (n BIGINT) WITH ('connector' = 'print');
"""


def shell(*arguments, text=""):
    command = [sys.executable, "-m", "penstock.cli", "sql", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)


@pytest.fixture
def init(flink, tmp_path):
    path = tmp_path / "init.sql"
    path.write_text(TABLES)
    return path


def test_a_script_runs_queries_and_waits_for_its_jobs(init):
    done = shell(
        "-i", init, text="SELECT n FROM few WHERE n > 1;\nINSERT INTO printed SELECT n * 10 FROM few;\nSHOW JOBS;"
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\| \+I \| +(\d) \|", done.stdout) == ["2", "3"]
    assert sorted(re.findall(r"\+I\[(\d+)\]", done.stdout)) == ["10", "20", "30"]
    assert "insert-into_default_catalog.default_database.printed" in done.stdout


def test_an_error_in_a_file_has_its_line_and_column_and_ends_the_script(init, tmp_path):
    script = tmp_path / "queries.sql"
    script.write_text("SHOW TABLES;\n\nSELECT n,\n  missing FROM few;\nSHOW VIEWS;\n")
    done = shell("-i", init, "-f", script)
    assert done.returncode == 1
    assert "line 4, column 3: Column 'missing' not found" in done.stderr
    assert "    missing FROM few\n    ^" in done.stderr
    assert f"{script}:4" in done.stderr
    assert "view name" not in done.stdout


@pytest.fixture
def session(flink, tmp_path):
    created = ClientSession(TableEnvironment(environment(tmp_path)))
    list(created.run_script(TABLES))
    with executing_on(Session(InProcess())):
        yield created
        for job in created.running():
            job.client.cancel().result(60)


def test_an_endless_query_is_cancelled_from_the_view(session):
    result = session.execute("SELECT v, COUNT(*) AS c FROM numbers GROUP BY v")
    with create_pipe_input() as keys:
        pager = Pager(["v", "c"], result.collect(), changelog=False, limit=100, input=keys, output=DummyOutput())

        def watch():
            deadline = time.monotonic() + 60
            while pager.found.received < 5 and time.monotonic() < deadline:
                time.sleep(0.05)
            keys.send_text("q")

        watcher = threading.Thread(target=watch)
        watcher.start()
        pager.run()
        watcher.join()
    assert pager.found.received >= 5
    assert len(pager.found) <= 3  # MOD gives -1, 0 and 1
    assert pager.is_cancelled


def test_options_of_the_planner_are_set_and_reset(session):
    text = "SELECT CAST(TO_TIMESTAMP_LTZ(n, 3) AS STRING) FROM (VALUES (0)) t(n)"
    session.execute("SET 'table.local-time-zone' = 'Asia/Tokyo'")
    assert [row[0] for row in session.execute(text).collect()] == ["1970-01-01 09:00:00.000"]
    session.execute("SET 'table.exec.state.ttl' = '1 h'")
    session.execute("RESET")
    assert [row[0] for row in session.execute(text).collect()] == ["1970-01-01 00:00:00.000"]
    assert "table.exec.state.ttl" not in [row[0] for row in session.execute("SET").collect()]


def test_jobs_of_the_session_are_listed_and_stopped(session):
    list(
        session.run_script(
            "CREATE TABLE nothing (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO nothing SELECT n FROM numbers"
        )
    )
    ((job_id, name, state),) = session.execute("SHOW JOBS").collect()
    assert name.endswith(".nothing")
    assert state in ("INITIALIZING", "CREATED", "RUNNING")
    session.execute(f"STOP JOB '{job_id}'")
    assert [row[2] for row in session.execute("SHOW JOBS").collect()] == ["CANCELED"]


def test_columns_are_completed_from_the_planner(session):
    completer = SqlCompleter(session)
    assert completer.columns("SELECT  FROM numbers") == ["n", "v"]
    assert "numbers" in completer.tables()
    assert "array_agg" in [name.lower() for name in completer.functions()]
