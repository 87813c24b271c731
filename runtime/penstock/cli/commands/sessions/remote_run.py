"""`penstock run -m URL`: run a program on a session cluster, and follow its output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.access.connection import connect
from penstock.cli.errors import MasterUnreachable, OperationFailed, RequestFailed, UsageError
from penstock.common.job_status import GLOBALLY_TERMINAL, JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cli.client import RestClient
    from penstock.rest.models.jars import ApplicationDetails, JarStarted

POLL_S = 0.3
FINAL = (*GLOBALLY_TERMINAL, JobStatus.SUSPENDED.value)


def run_remotely(
    master: str,
    token_file: Path | None,
    program: str,
    args: Sequence[str],
    *,
    entry: str | None,
    detached: bool,
    parallelism: int | None,
    savepoint_path: str | None,
    allow_non_restored_state: Sequence[str],
    configuration: Mapping[str, str],
    files: Sequence[str],
    requirements: str | None,
) -> None:
    """Send the program, start it, and unless `detached`, print its output until it has ended.

    Raises:
        OperationFailed: the program or one of its jobs has failed.
        Exit: the program has ended with this exit code.
    """
    from penstock.cli.commands.sessions.bundles import bundle_of  # a program that runs on this machine does not need it

    name, content = bundle_of(program, files, requirements)
    client = connect(master, token_file)
    try:
        jar = client.upload_program(name, content)
    except MasterUnreachable as error:
        if "does not respond" not in error.message:
            raise
        raise MasterUnreachable(
            error.message,
            remedy="start a session cluster with `penstock session start`, or pass the address of another one with -m URL",
        ) from None
    body = {
        "entryClass": entry or (Path(program).name if program.endswith((".py", ".sql")) else None),
        "programArgsList": list(args) or None,
        "parallelism": parallelism,
        "savepointPath": savepoint_path,
        "allowNonRestoredState": list(allow_non_restored_state) or None,
        "flinkConfiguration": dict(configuration) or None,
    }
    started = client.run_program(jar, {key: value for key, value in body.items() if value is not None})
    job_id = started.jobid
    typer.echo(f"Job has been submitted with JobID {job_id}")
    if detached:
        return
    try:
        _follow(client, started)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"job {job_id} continues on {client.url}. Cancel it with: penstock cancel -m {client.url} {job_id}"
        ) from None


def _follow(client: RestClient, started: JarStarted) -> None:
    """Print the output of the program until it has ended."""
    position = 0
    shown: set[str] = set()
    while True:
        application = client.application(started.applicationid)
        position = _print_output(client, started.jobid, position)
        for job in application.jobs:
            if job.state in FINAL and job.jid not in shown:
                shown.add(job.jid)
                if job.state != JobStatus.FAILED.value:
                    typer.echo(f"Job {job.jid} is {job.state}")
        if application.end_time >= 0:
            break
        time.sleep(POLL_S)
    if application.exit_code:
        raise _failure_of(client, application)


def _failure_of(client: RestClient, application: ApplicationDetails) -> Exception:
    """Return the exception that ends this command as the program has ended."""
    for job in application.jobs if application.exit_code == 1 else ():
        if job.state == JobStatus.FAILED.value:
            # The trace of the engine follows an empty line. The message has the line of the program.
            cause = (client.exceptions(job.jid).root_exception or "the cause is not known").split("\n\nTraceback")[0]
            return OperationFailed(
                f"job {job.jid} has failed: {cause.rstrip()}",
                remedy=f"penstock info -m {client.url} {job.jid} shows its history",
            )
        if job.state == JobStatus.SUSPENDED.value:
            return OperationFailed(f"job {job.jid} is suspended, because another JobManager has taken over")
    entries = client.application_exceptions(application.id).exception_history.entries
    text = entries[0].stacktrace.split("\n\nTraceback")[0] if entries else "the cause is not known"
    typer.echo(f"The program has ended with exit code {application.exit_code}: {text}", err=True)
    return typer.Exit(application.exit_code or 1)


def _print_output(client: RestClient, job_id: str, position: int) -> int:
    while True:
        try:
            text, end = client.program_output(job_id, position)
        except RequestFailed as error:
            if error.status in (404, 503):  # the job has just ended, or its process is restarting
                return position
            raise
        if text:
            typer.echo(text, nl=False)
        if end <= position or not text:
            return end
        position = end


def check_remote_options(*, in_process: bool) -> None:
    """Refuse options that have no meaning on a cluster."""
    if in_process:
        raise UsageError(
            "--in-process runs the job in this process, and -m on a cluster",
            remedy="pass only one of them. PENSTOCK_MASTER counts as -m",
        )


def check_local_options(options: Mapping[str, object]) -> None:
    """Refuse options that have a meaning only on a cluster."""
    given = [name for name, value in options.items() if value]
    if given:
        raise UsageError(
            f"{given[0]} is for a program that runs on a cluster",
            remedy="name the cluster with -m URL, PENSTOCK_MASTER, or rest.address in penstock.yaml",
        )


def configured_master(configuration: Mapping[str, str]) -> str | None:
    """Return the session cluster that the configuration names (`rest.address`, `rest.port`), or None."""
    from penstock.cli.access.masters import split_addresses
    from penstock.common.config import options
    from penstock.common.configuration import Configuration, load_configuration

    found = Configuration({**load_configuration().to_dict(), **configuration})
    if not found.contains_key(options.REST_ADDRESS.key):
        return None
    addresses = split_addresses(str(found.get(options.REST_ADDRESS)))
    return ",".join(one if "://" in one else f"{one}:{found.get(options.REST_PORT)}" for one in addresses)
