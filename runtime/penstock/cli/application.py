"""The application `penstock` without its commands.

`main` adds all commands. `start` adds only the commands that start a job, because the imports of the other commands
take 0.3 s.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.errors import exit_code, show_error
from penstock.common.errors import PenstockError

OPTIONS_FIRST = {"allow_interspersed_args": False}
"""Context settings of a command whose options come before the program. Later words are arguments of the program."""


class PenstockGroup(TyperGroup):
    """Group of commands that shows Penstock's errors as a line and a remedy. Any other exception is a defect and is
    shown with its traceback.
    """

    def invoke(self, ctx: Any) -> Any:  # Any: the context class is private to typer
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            show_error(error)
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except KeyboardInterrupt as interrupt:
            if str(interrupt):
                typer.echo(str(interrupt), err=True)
            raise typer.Exit(130) from None


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def new_application() -> typer.Typer:
    """Return the application without commands."""
    app = typer.Typer(
        name="penstock",
        cls=PenstockGroup,
        help="Run, inspect and change stateful streaming jobs in Python on Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    return app


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options of `penstock` itself, before the name of a command."""
