"""`penstock history` shows ended jobs from their archives (`jobmanager.archive.fs.dir`). It needs no JobManager."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.errors import RequestFailed
from penstock.cli.output import span, utc_time

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Folder of the archives: a URL such as s3://bucket/history, or a path.")
]

app = typer.Typer(help="List and show jobs that have ended, or serve their history over HTTP.", no_args_is_help=True)


@app.command("list")
def list_jobs(folder: Folder, define: Definitions = None) -> None:
    """List the jobs, the newest first: start, id, name, state and duration."""
    from penstock.jobmanager.history.serve import open_archives

    for archive in open_archives(folder, parse_definitions(define)).all():
        job = archive.job
        typer.echo(f"{utc_time(job.start)} : {job.id} : {job.name} ({job.state}, {span(job.end - job.start)})")


@app.command()
def show(
    folder: Folder,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Id of the job, the beginning of the id, or the job's name. If several jobs match, the newest one is shown.",
        ),
    ],
    define: Definitions = None,
) -> None:
    """Show a job: its result, its vertices with their counters, checkpoints, restarts, failures and events."""
    from penstock.jobmanager.history.serve import open_archives

    for archive in open_archives(folder, parse_definitions(define)).all():
        found = archive.job
        if found.name == job or found.id.startswith(job.lower()):
            break
    else:
        raise RequestFailed(
            f"{folder} has no archive of job '{job}'",
            remedy="list the archives with `penstock history list`",
            code="NOT_FOUND",
        )
    typer.echo(
        f"{found.name} ({found.id}): {found.state} after {span(found.end - found.start)}, from {utc_time(found.start)} to {utc_time(found.end)}"
    )
    counts = archive.checkpoints.get("counts", {})
    typer.echo(
        f"parallelism {found.parallelism}, {found.restarts} restarts, {found.rescale_count} rescales; checkpoints: {counts.get('completed', 0)} completed, {counts.get('failed', 0)} failed"
    )
    for vertex in found.vertices:
        of = [one.values for one in archive.subtasks if one.vertex == vertex.id]
        records = [sum(int(values.get(name) or 0) for values in of) for name in ("numRecordsIn", "numRecordsOut")]
        typer.echo(f"  {vertex.name}: {vertex.parallelism} subtasks, {records[0]} records in, {records[1]} out")
    for failure in found.failures:
        where = f" in {failure.task}" if failure.task else ""
        typer.echo(
            f"{utc_time(failure.timestamp)} {failure.name}{where}: {failure.message.splitlines()[0] if failure.message else ''}"
        )
    for event in found.events:
        typer.echo(f"{utc_time(event.timestamp)} {event.text}")


@app.command()
def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(help="Address on which the server listens.")] = "localhost",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the server; 0 means any free port.")] = 8082,
    define: Definitions = None,
) -> None:
    """Serve REST and the dashboard for the jobs of the folder, until Ctrl-C. New archives appear automatically."""
    from penstock.jobmanager.history.serve import serve_history

    server = serve_history(folder, host, port, parse_definitions(define))
    typer.echo(f"The history of {folder} is served at {server.url}")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop()
