"""`run_file`: an SQL file as a program. All its INSERT statements run as one job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob, PenstockError
from penstock.table.client.client_session import ClientSession
from penstock.table.client.statements import Statement, split

if TYPE_CHECKING:
    from penstock.table.table_result import TableResult

_SET_HEAD = re.compile(r"(EXECUTE\s+STATEMENT\s+SET\s+BEGIN\b|BEGIN\s+STATEMENT\s+SET\s*;)", re.IGNORECASE)
_SET_END = re.compile(r";\s*END\s*\Z", re.IGNORECASE)
_INSERT = re.compile(r"INSERT\b", re.IGNORECASE)
_QUERY = re.compile(r"(SELECT|WITH|VALUES|TABLE)\b|\(", re.IGNORECASE)
_ENDS_SHELL = re.compile(r"(QUIT|EXIT|CLEAR|HELP)\s*\Z", re.IGNORECASE)
_CANCEL_S = 30.0
_HEAD = "EXECUTE STATEMENT SET BEGIN "


def run_file(path: str, args: Sequence[str] = ()) -> None:
    """Execute the statements of a file, and run its INSERT statements as one job until it ends.

    Raises:
        InvalidJob: the file cannot be read, has no INSERT, or has a statement that only a shell executes.
        SqlError: Flink's planner refuses a statement. The error has the line and the column in the file.
    """
    if args:
        raise InvalidJob("an SQL file has no arguments", remedy="write the values into the file")
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.table.table_environment import TableEnvironment

    session = ClientSession(TableEnvironment(StreamExecutionEnvironment.get_execution_environment()))
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidJob(f"the SQL file {path} cannot be read: {error}", remedy="pass a text file in UTF-8") from None
    job = start_job(session, text, Path(path).name)
    try:
        job.wait()
    except KeyboardInterrupt:
        for running in session.running():
            running.client.cancel().result(_CANCEL_S)
            raise KeyboardInterrupt(f"interrupted: job {running.name!r} ({running.job_id}) is canceled") from None
        raise


def start_job(session: ClientSession, text: str, place: str) -> TableResult:
    """Execute the statements of a text, and start the job of its INSERT statements.

    Raises:
        PenstockError: see `run_file`.
    """
    inserts: list[Statement] = []
    started: TableResult | None = None
    for statement in split(text).all:
        try:
            found = _inserts_of(statement)
            result = None if found else session.execute(statement.placed)
        except PenstockError as error:
            raise _placed(error, place, statement)  # noqa: B904 - the same error
        inserts += found
        if result is not None and result.get_job_client() is not None:
            started = result  # EXECUTE PLAN
    if started is not None and not inserts:
        return started
    if not inserts:
        raise InvalidJob(
            f"{place} has no INSERT, so there is no job", remedy="write the result into a table: INSERT INTO … SELECT …"
        )
    try:
        return session.execute(statement_set(inserts))
    except PenstockError as error:
        raise _placed(error, place, inserts[0])  # noqa: B904 - the same error


def statement_set(inserts: Sequence[Statement]) -> str:
    """Return a statement set of the INSERT statements. Each keeps its line and, if nothing is before it in this line, its column.

    >>> statement_set([Statement("INSERT INTO a SELECT 1", 2), Statement("INSERT INTO b SELECT 2", 3)])
    'EXECUTE STATEMENT SET BEGIN \\nINSERT INTO a SELECT 1;\\nINSERT INTO b SELECT 2; END'
    """
    text = _HEAD
    for insert in inserts:
        text += "\n" * (insert.line - 1 - text.count("\n"))
        text += " " * (insert.column - 1 - len(text.rpartition("\n")[2])) + insert.text + ";"
    return f"{text} END"


def _inserts_of(statement: Statement) -> list[Statement]:
    """Return the INSERT statements of a statement: the statement itself, or the ones of a set."""
    head = _SET_HEAD.match(statement.text)
    if head:
        body = re.sub(r"[^\n]", " ", head[0]) + _SET_END.sub(";", statement.text[head.end() :])
        found = split(body).all
        return [
            Statement(
                insert.text,
                statement.line + insert.line - 1,
                insert.column + (statement.column - 1 if insert.line == 1 else 0),
            )
            for insert in found
        ]
    if _INSERT.match(statement.text):
        return [statement]
    if _QUERY.match(statement.text):
        raise InvalidJob(
            "SQL: a query in an SQL file has no table for its result",
            remedy="write INSERT INTO … SELECT …, or show the result with `penstock sql -f FILE`",
        )
    if _ENDS_SHELL.match(statement.text):
        raise InvalidJob(f"SQL: {statement.text.upper()} is a command of the shell", remedy="remove it from the file")
    return []


def _placed(error: PenstockError, place: str, statement: Statement) -> PenstockError:
    if not error.location:
        error.location = f"{place}:{getattr(error, 'line', None) or statement.line}"
    return error
