"""The application `penstock`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.commands import cluster, doctor, history, jobs, logs, roles, run, savepoint, stacks, state, top
from penstock.cli.errors import show_error
from penstock.common.errors import PenstockError

_OPTIONS_FIRST = {"allow_interspersed_args": False}


class PenstockGroup(TyperGroup):
    """Shows errors of Penstock as a line and a remedy; everything else is a defect and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:  # Any: the context class is private to typer
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            show_error(error)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    name="penstock",
    cls=PenstockGroup,
    help="Stateful streaming jobs in Python on Spark: run them, look at them, change them while they run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command("run", context_settings=_OPTIONS_FIRST)(run.run)
app.command("list")(jobs.list_jobs)
app.command("info")(jobs.info)
app.command("top")(top.top)
app.command("logs")(logs.logs)
app.command("stacks")(stacks.stacks)
app.command("flamegraph")(stacks.flame_graph)
app.command("checkpoints")(jobs.checkpoints)
app.command("checkpoint")(savepoint.checkpoint)
app.command("savepoint")(savepoint.savepoint)
app.command("stop")(jobs.stop)
app.command("cancel")(jobs.cancel)
app.command("rescale")(jobs.rescale)
app.command("modify", hidden=True)(jobs.rescale)
app.command("cluster")(cluster.cluster)
app.command("doctor")(doctor.doctor)
app.command("check", cls=roles.SpreadCommand, context_settings=_OPTIONS_FIRST)(roles.check)
app.command("master", cls=roles.SpreadCommand, context_settings=_OPTIONS_FIRST)(roles.master)
app.command("session")(roles.session)
app.command("worker")(roles.worker)
app.add_typer(state.app, name="state")
app.add_typer(history.app, name="history")
