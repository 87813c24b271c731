"""`penstock state read` shows state of a savepoint or checkpoint as a table, and `penstock state get` that of a running job."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Job, Master, TokenFile, connect, with_tls_options
from penstock.cli.client import Consistency
from penstock.cli.configuration import Definitions, parse_definitions, storage_options
from penstock.cli.output import show, table, text, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Read the state of a job, or in a savepoint or checkpoint.", no_args_is_help=True)

_NAME_HELP = (
    "Name of the state, 'timers (event-time)' or 'timers (processing-time)'. Default: list the states of the operator."
)


class RowFormat(StrEnum):
    table = "table"
    json = "json"


@app.callback()
def state() -> None:
    """Read the state of a job, a savepoint or a checkpoint."""


@app.command("read")
def read(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of the savepoint or checkpoint.")],
    uid: Annotated[str, typer.Option("--uid", help="The operator.")],
    name: Annotated[str | None, typer.Option("--name", help=_NAME_HELP)] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="json: one object per line.")] = RowFormat.table,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="Maximum number of entries.")] = None,
    define: Definitions = None,
) -> None:
    """Show the entries of a state: key, window (if any) and value. Needs no JobManager, and memory for one subtask's state."""
    from penstock.checkpoint.savepoint.contents import OperatorContents
    from penstock.checkpoint.savepoint.entries import columns

    contents = OperatorContents(path, uid, storage_options(parse_definitions(define)))
    rows: Iterable[dict[str, Any]]
    if name is None:
        rows = ({"name": state, "kind": kind} for state, kind in contents.names().items())
    else:
        rows = map(columns, contents.rows(name))
    _print(list(islice(rows, limit)), output)


@app.command("get")
@with_tls_options
def get(
    job: Job,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Queryable name of the state, or its own name. Default: list the states of the job."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key, as JSON or text. Default: show the first entries.")
    ] = None,
    uid: Annotated[
        str | None, typer.Option("--uid", help="Uid of the operator, if several operators have a state of this name.")
    ] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="json: one object per line.")] = RowFormat.table,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Maximum number of entries.")
    ] = 50,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Read the current value from the task that has the key. Only for queryable states."
        ),
    ] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show the state of a running job, from its newest checkpoint or (--live) from its tasks."""
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    if name is None:
        _print(client.states(job_id).states, output)
        return
    consistency: Consistency = "live" if live else "checkpoint"
    found = client.state_entries(job_id, name, key, uid=uid, limit=limit, consistency=consistency)
    _print(found.entries, output)
    if output is RowFormat.table and live:
        typer.echo(f"Attempt {found.attempt}, at {utc_time(found.timestamp)}.")
    elif output is RowFormat.table:
        more = "; there are more" if found.truncated else ""
        typer.echo(f"Checkpoint {found.checkpoint_id} of {utc_time(found.timestamp)}{more}.")


def _print(rows: list[dict[str, Any]], output: RowFormat) -> None:
    if output is RowFormat.json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    else:
        _show(rows)


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("The state has no entries.")
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    shown = table(*columns)
    for row in rows:
        shown.add_row(*(text(row[column]) if column in row else "" for column in columns))
    show(shown)
