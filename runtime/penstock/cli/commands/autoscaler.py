"""`penstock autoscaler` shows the decisions of a running job, or those for recorded measurements with the same or other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Job, Master, TokenFile, connect
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.errors import UsageError
from penstock.cli.output import local_time, show, span, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from penstock.jobmanager.autoscaling.decision import Decision
    from penstock.rest import models

app = typer.Typer(help="Show what the autoscaler decides.", no_args_is_help=True)


@app.callback()
def options() -> None:
    """Show what the autoscaler decides."""


@app.command("show")
def show_job(
    job: Job,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Maximum number of decisions.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer of the REST API.")] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show the wanted parallelism of a running job, the last decisions with their reasons, and the measurements of the newest one."""
    client = connect(master, token_file)
    found = client.autoscaler(client.find_job(job).jid, number)
    if as_json:
        typer.echo(found.model_dump_json(by_alias=True, indent=2))
        return
    facts = table("", "")
    facts.show_header = False
    facts.add_row("mode", found.mode)
    facts.add_row("parallelism", f"{found.current}, {found.min_parallelism} to {found.max_parallelism} allowed")
    facts.add_row("recommended" if found.mode == "recommend" else "wanted", str(found.wanted))
    facts.add_row("slots available", str(found.slots_available))
    facts.add_row("reason", f"{found.reason}: {found.message}")
    show(facts)
    if found.decisions and found.decisions[0].inputs:
        typer.echo()
        show(_measurements(found.decisions[0].inputs))
    if found.decisions:
        typer.echo()
        show(_decisions(found.decisions))


def _measurements(inputs: list[dict[str, Any]]) -> Table:
    columns = ("Par.", "Busy", "Load", "Records in/s", "Needed/s", "Possible/s", "Lag")
    rows = table("Vertex", *columns, right=columns)
    for one in inputs:
        lag = one.get("lagMs")
        rows.add_row(
            str(one.get("name", "")),
            str(one.get("parallelism", "-")),
            _share(one.get("busy")),
            _share(one.get("load")),
            _rate(one.get("inputRate")),
            _rate(one.get("targetRate")),
            _rate(one.get("trueRate")),
            "-" if lag is None else span(int(lag)),
        )
    return rows


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _decisions(decisions: list[models.AutoscalerDecision]) -> Table:
    rows = table("Since", "Times", "Current", "Wanted", "Reason", "Message", right=("Times", "Current", "Wanted"))
    for one in decisions:
        failed = f" The rescale failed: {one.failure}" if one.failure else ""
        rows.add_row(
            local_time(one.since),
            str(one.count),
            str(one.current),
            str(one.wanted),
            one.reason,
            f"{one.message}{failed}",
        )
    return rows


@app.command("record")
def record_job(
    job: Job,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the recording.")],
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Write the measurements of the last hour of a running job to a file, for `penstock autoscaler replay`."""
    client = connect(master, token_file)
    text = client.autoscaler_recording(client.find_job(job).jid)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error}", remedy="pass a path in an existing folder") from None
    entries = len(text.splitlines()) - 1
    typer.echo(f"{entries} measurements and rescales are in {file}")


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording of `penstock autoscaler record`.")],
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
