"""`penstock autoscaler` replays recorded measurements of a job, and shows the decisions with the same or with other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.errors import UsageError
from penstock.cli.output import local_time, show, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobmanager.autoscaling.decision import Decision

app = typer.Typer(help="Show what the autoscaler decides.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Show what the autoscaler decides."""


@app.command()
def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Recording: the answer of GET /jobs/:id/autoscaler/recording.")
    ],
    define: Definitions = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Show all decisions, not only those that differ from the one before.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each decision, with its inputs.")
    ] = False,
) -> None:
    """Replay a recording: print the decisions for its measurements. -D sets the keys of the autoscaler."""
    from penstock.common.config.option_table import check_key
    from penstock.jobmanager.autoscaling.recording import replay as replayed

    definitions = parse_definitions(define)
    for key in definitions:
        check_key(key)
    try:
        with file.open(encoding="utf-8") as lines:
            decisions = list(_shown(replayed(lines, definitions), every=every))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", remedy="pass the path of a recording") from None
    if as_json:
        for decision in decisions:
            typer.echo(json.dumps(decision.to_json(), ensure_ascii=False))
        return
    rows = table("Time", "Current", "Wanted", "Reason", "Message", right=("Current", "Wanted"))
    for decision in decisions:
        rows.add_row(
            local_time(decision.time_ms),
            str(decision.current),
            str(decision.wanted),
            decision.reason.value,
            decision.message,
        )
    show(rows)


def _shown(decisions: Iterable[Decision], *, every: bool) -> Iterator[Decision]:
    before = None
    for decision in decisions:
        now = (decision.current, decision.wanted, decision.reason)
        if every or now != before:
            yield decision
        before = now
