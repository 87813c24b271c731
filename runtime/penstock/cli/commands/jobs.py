"""Commands on jobs of a cluster: list, info, checkpoints, stop, cancel, rescale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Job, Master, Timeout, TokenFile, connect
from penstock.cli.errors import OperationFailed, UsageError
from penstock.cli.output import clock_time, local_time, show, size, span, table
from penstock.common.job_status import GLOBALLY_TERMINAL

if TYPE_CHECKING:
    from penstock.cli.client import RestClient
    from penstock.rest import models

LONG = 600.0
WAITING = frozenset({"CREATED", "INITIALIZING"})
_WIDTH = 62


def list_jobs(
    running: Annotated[bool, typer.Option("-r", "--running", help="List only running and restarting jobs.")] = False,
    all_jobs: Annotated[bool, typer.Option("-a", "--all", help="Also list ended jobs.")] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """List jobs: start time, id, name and state."""
    jobs = sorted(connect(master, token_file).jobs(), key=lambda job: job.start_time)
    active = [job for job in jobs if job.state not in GLOBALLY_TERMINAL | WAITING]
    _section("Running/Restarting Jobs", "No running jobs.", active)
    if not running:
        _section("Scheduled Jobs", "No scheduled jobs.", [job for job in jobs if job.state in WAITING])
    if all_jobs:
        _section("Terminated Jobs", "No terminated jobs.", [job for job in jobs if job.state in GLOBALLY_TERMINAL])


def _section(title: str, none: str, jobs: list[models.JobSummary]) -> None:
    if not jobs:
        typer.echo(none)
        return
    typer.echo(f" {title} ".center(_WIDTH, "-"))
    for job in jobs:
        typer.echo(f"{local_time(job.start_time)} : {job.jid} : {job.name} ({job.state})")
    typer.echo("-" * _WIDTH)


def info(job: Job, master: Master = DEFAULT_MASTER, token_file: TokenFile = None) -> None:
    """Show a job: its vertices, its progress and its last failure."""
    client = connect(master, token_file)
    found = client.find_job(job)
    details, progress = client.job(found.jid), client.progress(found.jid)
    facts = table("", "")
    facts.show_header = False
    facts.add_row("job", f"{details.name} ({details.jid})")
    facts.add_row("state", f"{details.state}, since {local_time(details.timestamps.get(details.state, -1))}")
    took = f"lasted {span(details.duration)}" if details.end_time >= 0 else f"{span(details.duration)} ago"
    facts.add_row("started", f"{local_time(details.start_time)}, {took}")
    facts.add_row("parallelism", f"{progress.parallelism}, at most {details.max_parallelism}")
    facts.add_row("restarts", str(progress.restarts))
    last = progress.checkpoints.last
    if last is not None:
        facts.add_row("restore from", f"{last.external_path} ({last.kind.lower()} {last.id})")
    if progress.last_exception is not None:
        facts.add_row("last failure", progress.last_exception)
    vertices = table(
        "Vertex", "Name", "Par.", "State", "Records in", "Records out", right=("Par.", "Records in", "Records out")
    )
    for vertex in details.vertices:
        metrics = vertex.metrics
        vertices.add_row(
            vertex.id,
            vertex.name,
            str(vertex.parallelism),
            vertex.status,
            f"{metrics.read_records:,}",
            f"{metrics.write_records:,}",
        )
    operators = table("uid", "Operator", "Vertex")
    for node in details.plan.nodes:
        for operator in node.operators:
            operators.add_row(operator.uid, operator.name, node.id)
    show(facts, "", vertices, "", operators)


def checkpoints(job: Job, master: Master = DEFAULT_MASTER, token_file: TokenFile = None) -> None:
    """Show a job's checkpoints and savepoints, the newest first."""
    client = connect(master, token_file)
    found = client.checkpoints(client.find_job(job).jid)
    counts = found.counts
    typer.echo(
        f"{counts.total} triggered, {counts.in_progress} in progress, {counts.completed} completed, "
        f"{counts.failed} failed, {counts.restored} restored"
    )
    if found.trigger is not None and found.trigger.state == "WAITING_FOR_COMMITS":
        typer.echo(f"Next checkpoint: {found.trigger.description}")
    if not found.history:
        return
    rows = table(
        "Id",
        "Kind",
        "Status",
        "Triggered",
        "Duration",
        "New",
        "State",
        "Where",
        right=("Id", "Duration", "New", "State"),
    )
    for entry in found.history:
        rows.add_row(
            str(entry.id),
            entry.checkpoint_type.lower(),
            entry.status,
            clock_time(entry.trigger_timestamp),
            span(entry.end_to_end_duration),
            size(entry.checkpointed_size),
            size(entry.state_size),
            entry.failure_message or (entry.external_path or "") + (" (removed)" if entry.discarded else ""),
        )
    show(rows)


def stop(
    job: Job,
    directory: Annotated[
        str | None, typer.Option("-p", "--savepointPath", metavar="DIR", help="Folder for the savepoint.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("-d", "--drain", help="Fire all windows and timers before the savepoint.")
    ] = False,
    timeout: Timeout = LONG,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Stop a job with a savepoint. If the savepoint fails, the job keeps running."""
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    typer.echo(f'{"Draining" if drain else "Suspending"} job "{job_id}" with a savepoint.')
    outcome = client.wait(client.stop(job_id, directory, drain=drain), f"stopping job {job_id}", timeout)
    typer.echo(f"Savepoint completed. Path: {outcome.location}")


def cancel(
    arguments: Annotated[
        list[str], typer.Argument(metavar="[DIR] JOB", help="The job. A folder can precede it if -s is given.")
    ],
    with_savepoint: Annotated[
        bool,
        typer.Option(
            "-s",
            "--withSavepoint",
            help="Take a savepoint before the cancellation, in the folder DIR or in the default folder.",
        ),
    ] = False,
    timeout: Timeout = LONG,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Cancel a job. If -s is given and the savepoint fails, the job keeps running."""
    directory, job = _directory_and_job(arguments, with_savepoint=with_savepoint)
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    if with_savepoint:
        where = f"to {directory}" if directory else "to the default savepoint directory"
        typer.echo(f"Cancelling job {job_id} with savepoint {where}.")
        request = client.savepoint(job_id, directory, cancel=True)
        outcome = client.wait(request, f"the savepoint of job {job_id}", timeout)
        _wait_for_cancel(client, job_id, timeout)
        typer.echo(f"Cancelled job {job_id}. Savepoint stored in {outcome.location}.")
    else:
        typer.echo(f"Cancelling job {job_id}.")
        client.cancel(job_id)
        _wait_for_cancel(client, job_id, timeout)
        typer.echo(f"Cancelled job {job_id}.")


def _directory_and_job(arguments: list[str], *, with_savepoint: bool) -> tuple[str | None, str]:
    """Parse `JOB`, `DIR JOB` or `JOB DIR`. A directory contains a slash, and a job does not."""
    if len(arguments) == 1:
        return None, arguments[0]
    if len(arguments) == 2 and with_savepoint:
        first, second = arguments
        return (second, first) if "/" in second and "/" not in first else (first, second)
    raise UsageError(
        f"cancel takes one job{' and one folder' if with_savepoint else ''}, not {' '.join(arguments)}",
        remedy="write `penstock cancel JOB` or `penstock cancel -s [DIR] JOB`",
    )


def _wait_for_cancel(client: RestClient, job_id: str, timeout: float) -> None:
    state = client.wait_until_ended(job_id, timeout)
    if state != "CANCELED":
        raise OperationFailed(
            f"job {job_id} is {state}, not CANCELED",
            remedy="" if state in GLOBALLY_TERMINAL else f"the request was sent; see `penstock info {job_id}`",
        )


def rescale(
    job: Job,
    parallelism: Annotated[int, typer.Option("-p", "--parallelism", min=1, help="The new parallelism.")],
    timeout: Timeout = LONG,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Change the parallelism of a running job without restarting any process. If it fails, the job keeps its parallelism."""
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    typer.echo(f"Modify job {job_id}.")
    client.wait(client.rescale(job_id, parallelism), f"rescaling job {job_id} to {parallelism}", timeout)
    typer.echo(f"Rescaled job {job_id}. Its new parallelism is {parallelism}.")
