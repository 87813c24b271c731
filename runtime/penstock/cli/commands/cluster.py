"""`penstock cluster`: what a cluster has; `penstock cluster stop`: end it."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.connection import DEFAULT_MASTER, Master, TokenFile, connect
from penstock.cli.output import show, size, table


def cluster(
    action: Annotated[str | None, typer.Argument(metavar="[stop]", help="Nothing: show it. stop: end it.")] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show a cluster's slots, jobs and TaskManagers, or end it."""
    client = connect(master, token_file)
    if action == "stop":
        client.shut_down()
        typer.echo(f"The cluster at {client.url} is going down.")
        return
    if action is not None:
        raise typer.BadParameter(f"'{action}' is not known; write `penstock cluster` or `penstock cluster stop`")
    found = client.overview()
    typer.echo(
        f"{client.url}: {found.taskmanagers} TaskManagers, {found.slots_available} of {found.slots_total} slots free, "
        f"version {found.flink_version}"
    )
    typer.echo(
        f"jobs: {found.jobs_running} running, {found.jobs_finished} finished, {found.jobs_cancelled} cancelled, "
        f"{found.jobs_failed} failed"
    )
    workers = client.task_managers().taskmanagers
    if not workers:
        return
    rows = table("TaskManager", "Host", "Slots", "Free", "Memory", right=("Slots", "Free", "Memory"))
    for worker in workers:
        slots = (str(worker.slots_number), str(worker.free_slots))
        rows.add_row(worker.id, worker.path, *slots, size(worker.memory_used))
    show(rows)
