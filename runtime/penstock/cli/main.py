"""The application `penstock`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.commands import (
    cluster,
    dev,
    doctor,
    fetch,
    history,
    jobs,
    logs,
    roles,
    run,
    savepoint,
    stacks,
    state,
    top,
    validate,
)
from penstock.cli.commands.projects import examples, init
from penstock.cli.connection import with_tls_options
from penstock.cli.errors import exit_code, show_error
from penstock.common.errors import PenstockError

_OPTIONS_FIRST = {"allow_interspersed_args": False}


class PenstockGroup(TyperGroup):
    """Group of commands that shows Penstock's errors as a line and a remedy. Any other exception is a defect and keeps its traceback."""

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


app = typer.Typer(
    name="penstock",
    cls=PenstockGroup,
    help="Run, inspect and change stateful streaming jobs in Python on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options of the command itself."""


app.command("init")(init.init)
app.command("examples")(examples.examples)
app.command("run", context_settings=_OPTIONS_FIRST)(run.run)
app.command("dev", context_settings=_OPTIONS_FIRST)(dev.dev)
app.command("list")(with_tls_options(jobs.list_jobs))
app.command("info")(with_tls_options(jobs.info))
app.command("top")(with_tls_options(top.top))
app.command("logs")(with_tls_options(logs.logs))
app.command("stacks")(with_tls_options(stacks.stacks))
app.command("flamegraph")(with_tls_options(stacks.flame_graph))
app.command("peek")(with_tls_options(stacks.peek))
app.command("checkpoints")(with_tls_options(jobs.checkpoints))
app.command("checkpoint")(with_tls_options(savepoint.checkpoint))
app.command("savepoint")(with_tls_options(savepoint.savepoint))
app.command("stop")(with_tls_options(jobs.stop))
app.command("cancel")(with_tls_options(jobs.cancel))
app.command("rescale")(with_tls_options(jobs.rescale))
app.command("modify", hidden=True)(with_tls_options(jobs.rescale))
app.command("cluster")(with_tls_options(cluster.cluster))
app.command("dashboard")(cluster.dashboard)
app.command("doctor")(doctor.doctor)
app.command("fetch", hidden=True)(fetch.fetch)
app.command("validate")(validate.validate)
app.command("check", cls=roles.SpreadCommand, context_settings=_OPTIONS_FIRST)(roles.check)
app.command("master", cls=roles.SpreadCommand, context_settings=_OPTIONS_FIRST)(roles.master)
app.command("session")(roles.session)
app.command("worker")(roles.worker)
app.add_typer(state.app, name="state")
app.add_typer(history.app, name="history")
