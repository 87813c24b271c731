"""`penstock stacks` and `penstock flamegraph`: what the threads of a running job do."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connection import DEFAULT_MASTER, Master, TokenFile, connect
from penstock.cli.errors import RequestFailed
from penstock.common.stacks.sampling import HERTZ, LONGEST_S, MOST_HERTZ

JOB_MANAGER = "jobmanager"


class Kind(enum.StrEnum):
    """What of a thread's time counts."""

    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"


def stacks(
    task_managers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASKMANAGER]...", help="Ids of TaskManagers, or `jobmanager`; none: all TaskManagers."
        ),
    ] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Print what the threads of Python workers do at this moment: where a job that stands still stands."""
    client = connect(master, token_file)
    for name in task_managers or [worker.id for worker in client.task_managers().taskmanagers]:
        for thread in client.thread_dump(None if name == JOB_MANAGER else name).thread_infos:
            typer.echo(f"{name}: {thread.stringified_thread_info.rstrip()}\n")


def flame_graph(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id, beginning of it, or name.")],
    vertex: Annotated[
        str | None,
        typer.Option("--vertex", metavar="NAME", help="Id or part of the name; may be left out if there is one."),
    ] = None,
    subtask: Annotated[int | None, typer.Option("--subtask", min=0, help="Only this one.")] = None,
    seconds: Annotated[float, typer.Option("-s", "--seconds", min=0.1, max=LONGEST_S, help="How long to look.")] = 5.0,
    hertz: Annotated[int, typer.Option("--hertz", min=1, max=MOST_HERTZ, help="Looks in a second.")] = HERTZ,
    kind: Annotated[
        Kind, typer.Option("--type", help="All that threads do, or only what runs, or what waits.")
    ] = Kind.FULL,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write to; else it is printed.", dir_okay=False)
    ] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Look at what the subtasks of a vertex spend their time with.

    Gives folded stacks, a line each, as https://speedscope.app, flamegraph.pl and inferno read them.
    """
    client = connect(master, token_file)
    found = client.job(client.find_job(job).jid)
    named = [one for one in found.vertices if vertex is None or vertex == one.id or vertex in one.name]
    if len(named) != 1:
        known = "; ".join(one.name for one in found.vertices)
        raise RequestFailed(
            f"job '{found.name}' has no vertex '{vertex}'" if not named else "more than one vertex is meant",
            remedy=f"say which with --vertex: {known}",
            code="NOT_FOUND",
            status=404,
        )
    text = client.flame_graph(found.jid, named[0].id, seconds=seconds, hertz=hertz, kind=kind.value, subtask=subtask)
    if not text:
        typer.echo("nothing was seen: none of its subtasks runs in a process that can be asked", err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(f"{len(text.splitlines())} stacks are in {output}", err=True)
