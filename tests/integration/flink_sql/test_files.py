"""SQL files as programs, with Flink's planner."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock_operator.api.validation import parse_spec

pytestmark = pytest.mark.sql
PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


def penstock(*arguments):
    command = [sys.executable, "-m", "penstock.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def statements_of(section: str) -> str:
    """Return the first SQL example of a section of the page."""
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text().partition(f"## {section}\n")[2], re.DOTALL)[0]


def test_the_pattern_of_the_page_finds_its_first_match(flink, tmp_path):
    path = tmp_path / "pattern.sql"
    path.write_text(statements_of("Patterns of rows"))
    done = penstock("sql", "-f", path)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\| \+I \| +(\w+) \| +(\d+) \| +(\d+) \|", done.stdout)[0] == ("KJFK", "0", "14")


def test_the_file_of_the_page_is_valid_and_runs_as_one_job(flink, tmp_path):
    text = statements_of("A file as a program")
    path = tmp_path / "counts.sql"
    path.write_text(text + "INSERT INTO counts SELECT 'all', COUNT(*) FROM readings;")
    valid = penstock("validate", path)
    assert (valid.returncode, valid.stdout) == (0, f"{path}: no problem\n"), valid.stderr
    done = penstock("run", "--in-process", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Job has been submitted") == 1
    assert {"+U[KJFK, 10]", "+U[KBOS, 10]", "+U[all, 20]"} <= set(re.findall(r"\+U\[.*?\]", done.stdout))


def test_the_statements_in_a_manifest_of_the_quickstart_are_valid(flink, tmp_path):
    spec = parse_spec(yaml.safe_load((PAGE.parent / "operator/quickstart/counts-sql.yaml").read_text())["spec"])
    path = tmp_path / "job.sql"
    path.write_text((spec.job.sql or "").replace("s3://penstock/counts", str(tmp_path)))
    assert penstock("validate", path).stdout == f"{path}: no problem\n"


def test_an_error_of_a_file_has_its_line_in_run_and_validate(flink, tmp_path):
    path = tmp_path / "wrong.sql"
    path.write_text(
        "CREATE TABLE t (n INT) WITH ('connector' = 'print');\n-- here\nINSERT INTO t SELECT 1;\n  INSERT INTO t SELECT missing;\n"
    )
    for command in (["validate"], ["run", "--in-process"]):
        done = penstock(*command, path)
        assert done.returncode == 1
        assert "line 4, column 24: Column 'missing' not found" in done.stderr
        assert "\n    INSERT INTO t SELECT missing" in done.stderr
