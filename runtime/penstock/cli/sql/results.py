"""`show_result`: the result of a statement on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.table.client.live_rows import MAX_ROWS

if TYPE_CHECKING:
    from penstock.table.client.client_session import ClientSession
    from penstock.table.table_result import TableResult

_MODE = "sql-client.execution.result-mode"
_LIMIT = "sql-client.execution.max-table-result.rows"


def show_result(session: ClientSession, result: TableResult, *, input: Any = None, output: Any = None) -> None:
    """Show the result of a statement on a terminal. A query runs until its end, or until the user cancels it."""
    mode = session.option(_MODE, "table")
    if not result.is_query or mode == "tableau":
        print_result(result)
        return
    from penstock.cli.sql.pager import Pager

    pager = Pager(
        result.get_column_names(),
        result.collect(),
        changelog=mode == "changelog",
        limit=int(session.option(_LIMIT, str(MAX_ROWS))),
        input=input,
        output=output,
    )
    pager.run()
    end = "cancelled" if pager.is_cancelled else "ended"
    typer.echo(f"query {end} with {len(pager.found)} rows, after {pager.found.received} changes")


def print_result(result: TableResult) -> None:
    """Print a result as lines. Ctrl-C cancels a query."""
    client = result.get_job_client()
    if client is not None:
        typer.echo(f"Job has been submitted with JobID {client.get_job_id()}")
        return
    if result.get_column_names() == ["result"]:
        for row in result.collect():
            typer.echo(row[0])
        return
    result.print()
