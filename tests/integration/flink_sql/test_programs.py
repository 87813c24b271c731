"""Programs with SQL, planned by Flink's planner and run by Penstock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.sql.planner.process import SqlError
from penstock.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from tests.in_process import InProcess, environment

pytestmark = pytest.mark.sql
PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


@pytest.fixture(scope="module")
def tables(flink, tmp_path_factory):
    env = environment(tmp_path_factory.mktemp("job"))
    created = StreamTableEnvironment.create(env, EnvironmentSettings.in_streaming_mode())
    created.execute_sql(
        "CREATE TABLE numbers (n INT, v AS MOD(n, 3)) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'fields.n.start' = '1', 'fields.n.end' = '9')"
    )
    with executing_on(Session(InProcess())):
        yield created


def test_the_program_of_the_page_prints_what_the_page_says(flink, tmp_path):
    program, output = re.search(r"```py\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL).groups()
    (tmp_path / "job.py").write_text(program)
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    printed = [re.sub(r"^\d+> ", "", line) for line in done.stdout.splitlines() if "[" in line]
    assert sorted(printed) == sorted(output.splitlines())


def test_a_query_collects_rows_with_kinds_and_python_values(tables):
    rows = list(tables.execute_sql("SELECT v, COUNT(*), DATE '2020-01-02' FROM numbers GROUP BY v").collect())
    last = {row[0]: (row[1], str(row[2])) for row in rows if str(row.get_row_kind()) in ("+I", "+U")}
    assert last == {0: (3, "2020-01-02"), 1: (3, "2020-01-02"), 2: (3, "2020-01-02")}
    assert "-U" in {str(row.get_row_kind()) for row in rows}


def test_a_table_is_used_in_another_query_and_written_to_files(tables, tmp_path):
    large = tables.sql_query("SELECT n, n * 1.5 AS x FROM numbers WHERE n > 6")
    tables.create_temporary_view("large", large)
    tables.execute_sql(
        f"CREATE TABLE files (n INT, x DECIMAL(10, 1)) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out', 'format' = 'json')"
    )
    tables.sql_query(f"SELECT l.n, l.x FROM {large} l WHERE l.n < 9").execute_insert("files").wait()
    parts = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(json.loads(line)["n"] for part in parts for line in part.splitlines()) == [7, 8]


def test_a_table_becomes_a_stream(tables):
    stream = tables.to_data_stream(tables.sql_query("SELECT n FROM numbers WHERE v = 0"))
    assert sorted(row["n"] for row in stream.execute_and_collect()) == [3, 6, 9]


def test_a_table_with_updates_is_no_insert_only_stream(tables):
    with pytest.raises(InvalidJob, match="later rows update its results"):
        tables.to_data_stream(tables.sql_query("SELECT v, COUNT(*) FROM numbers GROUP BY v"))


def test_an_error_has_the_line_and_the_column(tables):
    with pytest.raises(SqlError, match="Column 'missing' not found") as error:
        tables.sql_query("SELECT n,\n missing FROM numbers")
    assert (error.value.line, error.value.column) == (2, 2)


def test_a_join_gives_the_pairs(tables):
    rows = list(tables.execute_sql("SELECT a.n, b.n FROM numbers a JOIN numbers b ON a.n = b.v").collect())
    assert sorted(tuple(row) for row in rows) == [(1, 1), (1, 4), (1, 7), (2, 2), (2, 5), (2, 8)]


def test_an_unknown_connector_and_an_unknown_option_are_refused(tables):
    tables.execute_sql("CREATE TABLE other (n INT) WITH ('connector' = 'pulsar')")
    with pytest.raises(SqlError, match=r"connector 'pulsar'\. Connectors that can: datagen, filesystem, kafka"):
        tables.execute_sql("SELECT * FROM other")
    tables.execute_sql("CREATE TABLE wrong (n INT) WITH ('connector' = 'datagen', 'row-per-second' = '1')")
    with pytest.raises(InvalidJob, match="the option 'row-per-second' is not supported"):
        tables.execute_sql("SELECT * FROM wrong")


def test_explain_and_show_have_results_without_a_job(tables):
    assert "TableSourceScan" in tables.explain_sql("SELECT n FROM numbers")
    assert "numbers" in tables.list_tables()


def test_set_changes_the_zone_of_local_times(flink, tmp_path):
    created = TableEnvironment(environment(tmp_path))
    created.execute_sql("SET 'table.local-time-zone' = 'Asia/Tokyo'")
    with executing_on(Session(InProcess())):
        (row,) = created.execute_sql("SELECT CAST(TO_TIMESTAMP_LTZ(n, 3) AS STRING) FROM (VALUES (0)) t(n)").collect()
    assert row[0] == "1970-01-01 09:00:00.000"
