"""`penstock run -m URL`: run a program on a session cluster, and follow its output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli.connection import connect
from penstock.cli.errors import MasterUnreachable, OperationFailed, RequestFailed, UsageError
from penstock.common.job_status import GLOBALLY_TERMINAL, JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cli.client import RestClient

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
    """Send the program, start it, and unless `detached`, print its output until its first job has ended.

    Raises:
        OperationFailed: the job has failed.
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
        "entryClass": entry or (Path(program).name if program.endswith(".py") else None),
        "programArgsList": list(args) or None,
        "parallelism": parallelism,
        "savepointPath": savepoint_path,
        "allowNonRestoredState": list(allow_non_restored_state) or None,
        "flinkConfiguration": dict(configuration) or None,
    }
    job_id = client.run_program(jar, {key: value for key, value in body.items() if value is not None})
    typer.echo(f"Job has been submitted with JobID {job_id}")
    if detached:
        return
    try:
        _follow(client, job_id)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"job {job_id} continues on {client.url}. Cancel it with: penstock cancel -m {client.url} {job_id}"
        ) from None


def _follow(client: RestClient, job_id: str) -> None:
    """Print the output of the program until the job has ended."""
    position = 0
    while True:
        state = client.state(job_id)
        position = _print_output(client, job_id, position)
        if state in FINAL:
            break
        time.sleep(POLL_S)
    if state == JobStatus.FAILED.value:
        # The trace of the engine follows an empty line. The message has the line of the program.
        cause = (client.exceptions(job_id).root_exception or "the cause is not known").split("\n\nTraceback")[0]
        raise OperationFailed(
            f"job {job_id} has failed: {cause.rstrip()}",
            remedy=f"penstock info -m {client.url} {job_id} shows its history",
        )
    if state == JobStatus.SUSPENDED.value:
        raise OperationFailed(f"job {job_id} is suspended, because another JobManager has taken over")
    typer.echo(f"Job {job_id} is {state}")


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
    from penstock.common.config import options
    from penstock.common.configuration import Configuration, load_configuration

    found = Configuration({**load_configuration().to_dict(), **configuration})
    if not found.contains_key(options.REST_ADDRESS.key):
        return None
    address = str(found.get(options.REST_ADDRESS))
    return address if "://" in address else f"{address}:{found.get(options.REST_PORT)}"
