"""`penstock stacks` and `penstock flamegraph` show the threads of a running job, and `penstock peek` its records."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Job, Master, TokenFile, connect
from penstock.cli.errors import RequestFailed
from penstock.cli.output import local_time
from penstock.common.stacks.edge_records import LONGEST_WAIT_S, MAX_RECORDS
from penstock.common.stacks.sampling import HERTZ, LONGEST_S, MAX_HERTZ

JOB_MANAGER = "jobmanager"


class Kind(enum.StrEnum):
    """Part of a thread's time that is shown."""

    FULL = "full"
    ON_CPU = "on_cpu"
    OFF_CPU = "off_cpu"


def stacks(
    task_managers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASKMANAGER]...", help="Ids of TaskManagers, or `jobmanager`. Default: all TaskManagers."
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option("--program", metavar="JOB", help="Show the process that runs the program of this job instead."),
    ] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Print the current stacks of the Python workers' threads. Use it to find the line at which a job hangs.

    A session cluster has a process for each program. `--program` shows the threads of this process.
    """
    client = connect(master, token_file)
    if job is not None:
        for thread in client.thread_dump(None, client.find_job(job).jid).thread_infos:
            typer.echo(f"{thread.stringified_thread_info.rstrip()}\n")
        return
    for name in task_managers or [worker.id for worker in client.task_managers().taskmanagers]:
        for thread in client.thread_dump(None if name == JOB_MANAGER else name).thread_infos:
            typer.echo(f"{name}: {thread.stringified_thread_info.rstrip()}\n")


def flame_graph(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Id of the job, the beginning of the id, or the job's name.")
    ],
    vertex: Annotated[
        str | None,
        typer.Option(
            "--vertex",
            metavar="NAME",
            help="Id of the vertex or a part of its name. Optional if the job has one vertex.",
        ),
    ] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Sample the process that runs the job's program, not a vertex.")
    ] = False,
    subtask: Annotated[int | None, typer.Option("--subtask", min=0, help="Sample only this subtask.")] = None,
    seconds: Annotated[
        float, typer.Option("-s", "--seconds", min=0.1, max=LONGEST_S, help="Time over which stacks are sampled.")
    ] = 5.0,
    hertz: Annotated[int, typer.Option("--hertz", min=1, max=MAX_HERTZ, help="Number of samples in a second.")] = HERTZ,
    kind: Annotated[
        Kind, typer.Option("--type", help="Which samples to show: all, only running threads, or only waiting threads.")
    ] = Kind.FULL,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Output file. Default: standard output.", dir_okay=False)
    ] = None,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Sample the subtasks of a vertex to find where they spend their time.

    Prints folded stacks, one per line, for https://speedscope.app, flamegraph.pl and inferno.
    """
    client = connect(master, token_file)
    found = client.job(client.find_job(job).jid)
    named = [one for one in found.vertices if vertex is None or vertex == one.id or vertex in one.name]
    if len(named) != 1 and not program:
        known = "; ".join(one.name for one in found.vertices)
        raise RequestFailed(
            f"job '{found.name}' has no vertex '{vertex}'" if not named else "the command needs one vertex",
            remedy=f"choose a vertex with --vertex: {known}",
            code="NOT_FOUND",
            status=404,
        )
    sampled = None if program else named[0].id
    text = client.flame_graph(found.jid, sampled, seconds=seconds, hertz=hertz, kind=kind.value, subtask=subtask)
    if not text:
        typer.echo("no stacks were sampled: no subtask of the vertex runs in a process that can be sampled", err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(f"{len(text.splitlines())} stacks were written to {output}", err=True)


def peek(
    job: Job,
    edge: Annotated[
        str | None,
        typer.Argument(
            metavar="[EDGE]",
            help="SOURCE → TARGET (or with ->), with the names or uids of two operators. SOURCE alone if it has one output. "
            "Default: list the edges.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, max=MAX_RECORDS, help="Number of records to show.")
    ] = 10,
    seconds: Annotated[
        float, typer.Option("-s", "--seconds", min=0.1, max=LONGEST_WAIT_S, help="How long to wait for the records.")
    ] = 3.0,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show the last records on an edge of a running job, also inside of a vertex. Without EDGE, list the edges.

    Each line has the time at which the record was emitted, the subtask, the event time, the key, and the record.
    """
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    if edge is None:
        for found in client.edges(job_id).edges:
            typer.echo(f"{found.name}{'  (in one vertex)' if found.chained else ''}")
        return
    seen = client.edge_records(job_id, edge, limit=count, seconds=seconds)
    if not seen.records:
        typer.echo(f"{seen.edge}: no record within {seconds:g} s", err=True)
    for record in seen.records:
        words = [local_time(record.seen_at), f"#{record.subtask}"]
        words += [] if record.timestamp is None else [f"event time {local_time(record.timestamp)}"]
        words += [] if record.key is None else [f"key {record.key}"]
        typer.echo(f"{'  '.join(words)}  {record.value}")
