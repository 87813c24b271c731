"""`penstock state read`: state of a savepoint or checkpoint as a table; `penstock state get`: that of a running job."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.client import Consistency
from penstock.cli.configuration import Definitions, parse_definitions, storage_options
from penstock.cli.connection import DEFAULT_MASTER, Job, Master, TokenFile, connect
from penstock.cli.output import show, table, text, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Read the state of a job, or in a savepoint or checkpoint.", no_args_is_help=True)

_NAME_HELP = "The state, or 'timers (event-time)', or 'timers (processing-time)'; left out: list the operator's states."


class RowFormat(StrEnum):
    table = "table"
    json = "json"


@app.callback()
def state() -> None:
    """Read the state of a job, or in a savepoint or checkpoint."""


@app.command("read")
def read(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of the savepoint or checkpoint.")],
    uid: Annotated[str, typer.Option("--uid", help="The operator.")],
    name: Annotated[str | None, typer.Option("--name", help=_NAME_HELP)] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="json: one object per line.")] = RowFormat.table,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="At most so many entries.")] = None,
    define: Definitions = None,
) -> None:
    """Show the entries of a state: key, window if it has any, value. Needs no JobManager; one subtask's state is in memory."""
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
def get(
    job: Job,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Its queryable name, or its own; left out: list the job's states."),
    ] = None,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="As JSON, or as text; left out: the first entries.")
    ] = None,
    uid: Annotated[str | None, typer.Option("--uid", help="The operator, if several have such a state.")] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="json: one object per line.")] = RowFormat.table,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="At most so many entries.")] = 50,
    live: Annotated[
        bool, typer.Option("--live", help="Of a queryable state, as the task that has the key holds it now.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Look into the state of a running job, as of its newest checkpoint or (--live) as it is now."""
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
        typer.echo("Nothing is stored there.")
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    made = table(*columns)
    for row in rows:
        made.add_row(*(text(row[column]) if column in row else "" for column in columns))
    show(made)
