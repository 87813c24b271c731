"""`penstock state read`: state of a savepoint or checkpoint as a table."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.configuration import Definitions, parse_definitions, storage_options
from penstock.cli.output import show, table, text

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Read the state in a savepoint or checkpoint.", no_args_is_help=True)

_NAME_HELP = "The state, or 'timers (event-time)', or 'timers (processing-time)'; left out: list the operator's states."


class RowFormat(StrEnum):
    table = "table"
    json = "json"


@app.callback()
def state() -> None:
    """Read the state in a savepoint or checkpoint."""


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
    shown = islice(rows, limit)
    if output is RowFormat.json:
        for row in shown:
            typer.echo(json.dumps(row, ensure_ascii=False))
    else:
        _show(list(shown))


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("Nothing is stored there.")
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    made = table(*columns)
    for row in rows:
        made.add_row(*(text(row[column]) if column in row else "" for column in columns))
    show(made)
