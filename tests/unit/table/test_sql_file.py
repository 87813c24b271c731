"""SQL files as programs."""

from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob
from penstock.sql.planner.process import SqlError
from penstock.table.client.sql_file import run_file, start_job
from tests.unit.table.sql_session import fake_session


def test_all_inserts_of_a_file_are_one_statement_set_with_their_positions():
    session = fake_session()
    text = """SET 'pipeline.name' = 'totals';
INSERT INTO a SELECT 1;
CREATE TABLE b (n INT);
  BEGIN STATEMENT SET; INSERT INTO b SELECT 2;
INSERT INTO c SELECT 3; END;
"""
    with pytest.raises(SqlError):
        start_job(session, text, "job.sql")
    *others, statements = session.env.executed
    assert [statement.strip() for statement in others] == ["CREATE TABLE b (n INT)"]
    assert statements.splitlines() == [
        "EXECUTE STATEMENT SET BEGIN ",
        "INSERT INTO a SELECT 1;",
        "",
        "                       INSERT INTO b SELECT 2;",
        "INSERT INTO c SELECT 3; END",
    ]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("-- nothing\nSHOW TABLES;", "has no INSERT", None),
        ("SHOW TABLES;\n\nSELECT 1 FROM t;", "has no table for its result", 3),
        ("SHOW TABLES;\nQUIT;", "QUIT is a command of the shell", 2),
        ("SHOW TABLES;\nSELEC 1;", "line 2, column 1", 2),
    ],
)
def test_a_file_that_is_no_program_is_refused_with_its_line(text, message, line):
    with pytest.raises(InvalidJob, match=message) as error:
        start_job(fake_session(), text, "job.sql")
    assert error.value.location == ("" if line is None else f"job.sql:{line}")


def test_a_file_that_cannot_be_read_and_arguments_are_refused(tmp_path):
    (tmp_path / "a.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidJob, match="cannot be read"):
        run_file(str(tmp_path / "a.sql"))
    with pytest.raises(InvalidJob, match="has no arguments"):
        run_file(str(tmp_path / "a.sql"), ["x"])
