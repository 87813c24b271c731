"""The statements that a session executes itself."""

from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob
from penstock.sql.planner.process import SqlError
from tests.unit.table.sql_session import fake_session


def rows(result):
    return [tuple(row) for row in result.collect()]


def test_set_and_reset_change_options_with_and_without_quotes():
    session = fake_session()
    session.execute("SET 'parallelism.default' = '2'")
    session.execute("set pipeline.name = it''s")
    session.execute("SET 'sql-client.execution.result-mode' = 'CHANGELOG'")
    assert dict(rows(session.execute("SET"))) == {
        "parallelism.default": "2",
        "pipeline.name": "it''s",
        "sql-client.execution.result-mode": "changelog",
        "table.local-time-zone": "UTC",
    }
    session.execute("RESET 'parallelism.default'")
    session.execute("RESET 'sql-client.execution.result-mode'")
    assert [key for key, _ in rows(session.execute("SET"))] == ["pipeline.name", "table.local-time-zone"]
    session.execute("RESET")
    assert rows(session.execute("SET")) == []


def test_values_of_secret_options_are_not_shown():
    session = fake_session()
    session.execute("SET 's3.secret-key' = 'abc'")
    assert ("s3.secret-key", "******") in rows(session.execute("SET"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SET 'sql-client.execution.result-mode' = 'tables'", "is set to 'tables'"),
        ("SET 'sql-client.execution.max-table-result.rows' = '-1'", "is set to '-1'"),
        ("SET 'sql-client.verbos' = 'true'", "'sql-client.verbos' does not exist"),
        ("SET 'execution.runtime-mode' = 'batch'", "batch mode is not supported"),
        ("ADD JAR 'a.jar'", "jars are not supported"),
        ("STOP JOB 'abc'", "has started no job 'abc'"),
    ],
)
def test_a_wrong_command_is_refused_by_name(statement, message):
    with pytest.raises(InvalidJob, match=message):
        fake_session().execute(statement)


def test_the_old_form_of_a_statement_set_is_one_statement():
    session = fake_session()
    with pytest.raises(SqlError):
        list(session.run_script("BEGIN STATEMENT SET;\nINSERT INTO a SELECT 1; END;"))
    assert session.env.executed == ["EXECUTE STATEMENT SET BEGIN\nINSERT INTO a SELECT 1; END"]


def test_an_error_of_a_script_has_its_position_in_the_file():
    session = fake_session()
    script = session.run_script("-- a comment\nSHOW TABLES;\n  SELEC 1;\nSHOW TABLES;", place="a.sql")
    next(script)
    with pytest.raises(SqlError, match=r"line 3, column 3(?s:.*)\n    SELEC 1\n    \^") as error:
        next(script)
    assert error.value.location == "a.sql:3"
    assert len(session.env.executed) == 2
