"""`Shell`: reads statements from a terminal, executes them in a session, and shows their results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.errors import show_error
from penstock.cli.sql.results import show_result
from penstock.common.errors import PenstockError
from penstock.common.folders.private_folder import cache_folder
from penstock.common.program.extras import import_extra
from penstock.table.client.statements import split

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from penstock.table.client.client_session import ClientSession

PROMPT = "penstock sql> "
HELP = """Statements end with a semicolon and may have several lines. Tab completes names.

  SHOW TABLES; DESCRIBE t;      list the tables, and the columns of a table
  CREATE TABLE … WITH (…);      name a source or a sink
  SELECT …;                     run a query. The result changes while the query runs. q or Ctrl-C cancels the query
  INSERT INTO … SELECT …;       start a job. SHOW JOBS; and STOP JOB 'ID'; list and end the jobs of this session
  BEGIN STATEMENT SET; … END;   start one job for several INSERT statements
  EXPLAIN SELECT …;             show the plan of a query
  SET; SET 'KEY' = 'VALUE';     show and set options. RESET 'KEY'; and RESET; restore their defaults
  SET 'sql-client.execution.result-mode' = 'table' | 'changelog' | 'tableau';
  CLEAR; HELP; QUIT;            clear the screen, show this text, end the shell (also Ctrl-D)"""
_EXTRA = "flink-sql"


class Shell:
    """An interactive shell.

    Args:
        session: session that executes the statements.
        input, output: terminal, for tests.
        history: file with the history. None means a file in the cache directory of this user.
    """

    def __init__(
        self,
        session: ClientSession,
        *,
        input: Input | None = None,
        output: Output | None = None,
        history: Path | None = None,
    ) -> None:
        import_extra("prompt_toolkit", _EXTRA, "the SQL shell")
        from penstock.cli.sql.completion import SqlCompleter

        self.session = session
        self._terminal = {"input": input, "output": output}
        self._completer = SqlCompleter(session)
        self._prompt = self._new_prompt(history or cache_folder("sql") / "history")

    def run(self) -> None:
        """Read and execute statements until QUIT or Ctrl-D. An error ends a statement, not the shell."""
        typer.echo("SQL shell of Penstock. HELP; lists the commands.")
        while True:
            try:
                text = self._prompt.prompt(PROMPT)
            except KeyboardInterrupt:
                continue  # Ctrl-C clears the input
            except EOFError:
                return
            for statement in split(text).all:
                try:
                    if not self._execute(statement.text):
                        return
                except PenstockError as error:
                    show_error(error)
                    break
                except KeyboardInterrupt:
                    typer.echo("cancelled")
                    break
            self._completer.refresh()

    def _execute(self, statement: str) -> bool:
        """Execute a statement. Return False if it ends the shell."""
        command = statement.strip().upper()
        if command in ("QUIT", "EXIT"):
            return False
        if command == "HELP":
            typer.echo(HELP)
        elif command == "CLEAR":
            from prompt_toolkit.shortcuts import clear

            clear()
        else:
            show_result(self.session, self.session.execute(statement), **self._terminal)
        return True

    def _new_prompt(self, history: Path) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import ThreadedCompleter
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer

        keys = KeyBindings()
        session: PromptSession[str]

        def is_incomplete() -> bool:
            return not is_complete(session.default_buffer.text)

        def new_line(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        keys.add("enter", filter=Condition(is_incomplete))(new_line)
        session = PromptSession(
            history=FileHistory(str(history)),
            completer=ThreadedCompleter(self._completer),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=False,
            key_bindings=keys,
            prompt_continuation=" " * len(PROMPT),
            **self._terminal,
        )
        return session


def is_complete(text: str) -> bool:
    """Return whether Enter executes the text. It then ends with a semicolon that ends a statement, or it is empty.

    >>> is_complete("SELECT 1;"), is_complete("SELECT 1"), is_complete("SELECT ';"), is_complete(" ")
    (True, False, False, True)
    """
    found = split(text)
    return found.rest is None and not found.is_open


def is_interactive() -> bool:
    """Return whether a person types the statements and reads the results."""
    return sys.stdin.isatty() and sys.stdout.isatty()
