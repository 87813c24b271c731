"""`penstock savepoint` takes, disposes of or verifies a savepoint, and `penstock checkpoint` takes a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Master, Timeout, TokenFile, connect
from penstock.cli.commands.jobs import LONG
from penstock.cli.configuration import Definitions, parse_definitions, storage_options
from penstock.cli.errors import UsageError
from penstock.cli.output import size, utc_time
from penstock.common.errors import SnapshotTorn

USAGE = "write `penstock savepoint JOB [DIR]`, `penstock savepoint -d PATH` or `penstock savepoint verify PATH`"


def savepoint(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB [DIR] | verify PATH",
            help="The job and a folder for its savepoint, or `verify` and the path of a snapshot.",
        ),
    ] = None,
    dispose: Annotated[
        str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint instead of taking one.")
    ] = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="For verify: also read every file and compare its checksum.")
    ] = False,
    define: Definitions = None,
    timeout: Timeout = LONG,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Take a savepoint of a running job and print its path. Or dispose of a savepoint, or verify one without a JobManager."""
    words = arguments or []
    if dispose is not None:
        if words:
            raise UsageError(f"-d takes one path and no other arguments, but got {' '.join(words)}", remedy=USAGE)
        _dispose(master, token_file, dispose, timeout)
    elif words[:1] == ["verify"]:
        if len(words) != 2:
            raise UsageError("verify takes one path", remedy=USAGE)
        _verify(words[1], parse_definitions(define), checksums=checksums)
    elif len(words) in (1, 2):
        _take(master, token_file, words[0], words[1] if len(words) == 2 else None, timeout)
    else:
        raise UsageError("savepoint needs a job", remedy=USAGE)


def checkpoint(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Id of the job, the beginning of the id, or the job's name.")
    ],
    timeout: Timeout = LONG,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Take a checkpoint of a running job now, and print its number."""
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    number = client.wait_for_checkpoint(client.checkpoint(job_id), f"the checkpoint of job {job_id}", timeout)
    typer.echo(f"Checkpoint {number} of job {job_id} is complete.")


def _take(master: str, token_file: TokenFile, job: str, directory: str | None, timeout: float) -> None:
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    typer.echo(f"Triggering savepoint for job {job_id}.")
    request = client.savepoint(job_id, directory)
    typer.echo("Waiting for response...")
    outcome = client.wait(request, f"the savepoint of job {job_id}", timeout)
    typer.echo(f"Savepoint completed. Path: {outcome.location}")
    typer.echo("You can resume your program from this savepoint with the run command.")


def _dispose(master: str, token_file: TokenFile, path: str, timeout: float) -> None:
    client = connect(master, token_file)
    typer.echo(f"Disposing savepoint '{path}'.")
    request = client.dispose(path)
    typer.echo("Waiting for response...")
    client.wait(request, f"disposing of {path}", timeout)
    typer.echo(f"Savepoint '{path}' disposed.")


def _verify(path: str, configuration: dict[str, str], *, checksums: bool) -> None:
    from penstock.checkpoint.savepoint.snapshots import verify

    report = verify(path, storage_options(configuration), checksums=checksums)
    if not report.is_complete:
        problems = report.problems()
        raise SnapshotTorn(
            f"{path} is not complete. {len(problems)} of {report.files} files cannot be used:\n"
            + "\n".join(f"  {p}" for p in problems),
            remedy="use another savepoint or checkpoint",
        )
    manifest = report.snapshot.manifest
    typer.echo(f"{manifest.kind.capitalize()} {report.snapshot.url} is complete.")
    typer.echo(f"  job          {manifest.job_name} ({manifest.job_id}), checkpoint {manifest.checkpoint_id}")
    typer.echo(f"  taken        {utc_time(manifest.trigger_timestamp)} UTC, by Penstock {manifest.penstock_version}")
    typer.echo(f"  parallelism  {manifest.parallelism}, at most {manifest.max_parallelism}")
    checked = "sizes and checksums" if report.checksums_verified else "sizes; --checksums reads them too"
    typer.echo(f"  files        {report.files}, {size(report.bytes)} ({checked})")
    for operator in manifest.operators:
        states = ", ".join(operator.states) or "no keyed state"
        typer.echo(f"  uid          {operator.uid}  {operator.name}: {states}")
