"""`penstock cluster` shows a cluster, and `penstock cluster stop` shuts it down."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Master, TokenFile, connect
from penstock.cli.output import show, size, table


def dashboard(master: Master = DEFAULT_MASTER) -> None:
    """Print the dashboard's address. For your own `python job.py`, it includes the token, so that the page logs in by itself."""
    from penstock.cli.access.masters import split_addresses
    from penstock.common.credentials.local_token import dashboard_link

    typer.echo(dashboard_link(split_addresses(master)[0]))


def cluster(
    action: Annotated[
        str | None, typer.Argument(metavar="[stop]", help="Omit it to show the cluster. stop: shut the cluster down.")
    ] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show a cluster's slots, jobs and TaskManagers, or shut it down."""
    client = connect(master, token_file)
    if action == "stop":
        client.shut_down()
        typer.echo(f"The cluster at {client.url} shuts down.")
        return
    if action is not None:
        raise typer.BadParameter(
            f"the action '{action}' does not exist; write `penstock cluster` or `penstock cluster stop`"
        )
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
