"""`penstock dev` runs a program in one process and restarts it, with its state, after each change of its files."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.commands.run import check_arguments
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.engine import launcher
from penstock.cli.errors import show_error, show_program_error
from penstock.common.errors import PenstockError


def dev(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The program, a Python file.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the program.")] = None,
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", min=1, help="Default parallelism.")] = None,
    define: Definitions = None,
) -> None:
    """Run a program in one process, and restart it when you save one of its files. Its jobs keep their state where it fits.

    Breakpoints work in all functions. Ctrl-C ends the command. Options go before SCRIPT, its arguments after it.
    """
    check_arguments(script)
    configuration = parse_definitions(define)

    def show(error: BaseException) -> None:
        if isinstance(error, PenstockError):
            show_error(error)
        else:
            show_program_error(error, script)

    launcher().run_dev(
        script=script,
        args=args or [],
        parallelism=parallelism,
        configuration=configuration,
        show=show,
        say=_say,
    )


def _say(line: str) -> None:
    typer.secho(f"dev: {line}", err=True, fg=typer.colors.CYAN)
