"""`penstock state read`: state of a savepoint or checkpoint as a table."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.configuration import Definitions, parse_definitions, storage_options
from penstock.cli.output import show, table

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Read the state in a savepoint or checkpoint.", no_args_is_help=True)


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
    name: Annotated[str | None, typer.Option("--name", help="The state; left out: list the operator's states.")] = None,
    output: Annotated[RowFormat, typer.Option("--format", help="json: one object per line.")] = RowFormat.table,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="At most so many entries.")] = None,
    define: Definitions = None,
) -> None:
    """Show the entries of a state: key, window if it has any, value. Needs no JobManager; reads the state into memory."""
    from penstock.cli.state_reader import SnapshotState

    found = SnapshotState(path, uid, storage_options(parse_definitions(define)))
    rows: Iterable[dict[str, Any]]
    if name is None:
        rows = ({"name": state, "kind": kind} for state, kind in found.names().items())
    else:
        rows = found.rows(name)
    shown = islice(rows, limit)
    if output is RowFormat.json:
        for row in shown:
            typer.echo(json.dumps(_with_text_keys(row), ensure_ascii=False))
    else:
        _show(list(shown))


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("Nothing is stored there.")
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    made = table(*columns)
    for row in rows:
        made.add_row(*(_text(row[column]) if column in row else "" for column in columns))
    show(made)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_with_text_keys(value), ensure_ascii=False)


def _with_text_keys(value: Any) -> Any:
    """JSON has only text as keys: others are written as JSON themselves."""
    if isinstance(value, dict):
        return {k if isinstance(k, str) else json.dumps(k): _with_text_keys(v) for k, v in value.items()}
    return [_with_text_keys(v) for v in value] if isinstance(value, (list, tuple)) else value
