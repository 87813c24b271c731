"""`penstock sql`: SQL statements from a terminal, a file or a pipe, on this machine or on a session cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.access.connection import TokenFile
from penstock.cli.commands.sessions.remote_run import configured_master
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.errors import UsageError, show_error
from penstock.common.config import options
from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph.executor import Executor
    from penstock.table.client.client_session import ClientSession

Statements = Annotated[
    list[str] | None,
    typer.Option("-e", "--execute", metavar="SQL", help="Execute these statements and exit. Can be repeated."),
]
File = Annotated[
    Path | None, typer.Option("-f", "--file", metavar="FILE", help="Execute the statements of this file and exit.")
]
InitFile = Annotated[
    list[Path] | None,
    typer.Option("-i", "--init", metavar="FILE", help="Execute the statements of this file first. Can be repeated."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--master",
        metavar="URL",
        help="Run queries and jobs on this session cluster. Default: PENSTOCK_MASTER, or rest.address of the configuration. Not set: on "
        "this machine.",
    ),
]
Parallelism = Annotated[int | None, typer.Option("-p", "--parallelism", min=1, help="Default parallelism.")]


def sql(
    statements: Statements = None,
    file: File = None,
    init: InitFile = None,
    master: Cluster = None,
    token_file: TokenFile = None,
    parallelism: Parallelism = None,
    define: Definitions = None,
) -> None:
    """Execute SQL statements: typed in a shell, from -e or -f, or from standard input.

    On this machine, queries and jobs run in this process, and jobs end with it. -D penstock.runner=pipelined runs them on Spark.
    """
    settings = parse_definitions(define)
    if parallelism is not None:
        settings[options.PARALLELISM.key] = str(parallelism)
    if statements and file is not None:
        raise UsageError("-e and -f exclude each other", remedy="pass only one of them")
    texts = [(_read(path), str(path)) for path in init or []]
    master = master or os.environ.get("PENSTOCK_MASTER") or configured_master(settings)
    session = _new_session(settings, master, token_file)
    from penstock.cli.sql.shell import Shell, is_interactive

    if statements:
        texts += [(text, "-e") for text in statements]
    elif file is not None:
        texts.append((_read(file), str(file)))
    elif not is_interactive():
        texts.append((sys.stdin.read(), "stdin"))
    for text, place in texts:
        execute_script(session, text, place)
    try:
        if statements or file is not None or not is_interactive():
            _wait(session, master)
        else:
            Shell(session).run()
    finally:
        if master is None:
            _cancel(session)


def execute_script(session: ClientSession, text: str, place: str) -> None:
    """Execute the statements of a text and print their results.

    Raises:
        PenstockError: a statement failed. The error has the place, and the line and the column in the text.
    """
    from penstock.cli.sql.results import print_result

    for _, result in session.run_script(text, place=place):
        print_result(result)


def _new_session(settings: Mapping[str, str], master: str | None, token_file: Path | None) -> ClientSession:
    from penstock.common.configuration import set_command_line

    set_command_line(settings)
    return create_session(master, token_file)


def create_session(master: str | None, token_file: Path | None, executor: Executor | None = None) -> ClientSession:
    """Return a new session.

    Args:
        master: URL of a session cluster. None means this machine.
        executor: executor for this machine. None means the one of the current thread.
    """
    from penstock.common.configuration import Configuration
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.table.client.client_session import ClientSession
    from penstock.table.table_environment import TableEnvironment

    if master is not None:
        token = None if token_file is None else _read(token_file).strip()
        env = StreamExecutionEnvironment.create_remote_environment(
            master if "://" in master else f"http://{master}", token=token
        )
    else:
        found = StreamExecutionEnvironment.get_execution_environment()
        env = found if executor is None else StreamExecutionEnvironment(found.get_configuration(), executor)
        if not env.get_configuration().contains_key(options.RUNNER.key):
            env.configure(Configuration().set(options.RUNNER, options.IN_PROCESS))
    return ClientSession(TableEnvironment(env))


def _wait(session: ClientSession, master: str | None) -> None:
    """Wait for jobs that would end with this process."""
    if master is None:
        for job in session.jobs:
            job.client.get_job_execution_result().result()


def _cancel(session: ClientSession) -> None:
    for job in session.running():
        typer.echo(f"cancel job {job.job_id} ({job.name}), which runs in this process", err=True)
        try:
            job.client.cancel().result(30)
        except PenstockError as error:
            show_error(error)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"the file {path} cannot be read: {reason}", remedy="pass a readable text file in UTF-8"
        ) from None
