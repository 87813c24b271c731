"""`penstock session`: the process of a session cluster, and the local session clusters of this user."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Master, TokenFile, connect
from penstock.cli.client import RestClient
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.engine import launcher
from penstock.cli.errors import MasterUnreachable, OperationFailed, RequestFailed, UsageError
from penstock.cli.output import show, table
from penstock.common.credentials.local_token import published_urls
from penstock.common.folders.private_folder import private_folder, temporary_folder

START_S = 300.0
STOP_S = 60.0
_READY = "Session cluster at "

app = typer.Typer(
    invoke_without_command=True,
    help="Run a session cluster, which runs the programs that clients send to it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def session(
    ctx: typer.Context,
    local: Annotated[
        bool,
        typer.Option(
            "--local", help="Start workers on this machine together with the master, instead of with `penstock worker`."
        ),
    ] = False,
    define: Definitions = None,
) -> None:
    """Run a session cluster in this process: a JobManager without a program, which runs the programs that clients send."""
    if ctx.invoked_subcommand is not None:
        if local or define:
            raise UsageError(
                "options of `penstock session` go behind the subcommand",
                remedy=f"write penstock session {ctx.invoked_subcommand} -D KEY=VALUE",
            )
        return
    raise typer.Exit(launcher().run_session(configuration=parse_definitions(define), local=local))


@app.command("start")
def start(define: Definitions = None) -> None:
    """Start a session cluster on this machine, in the background."""
    configuration = parse_definitions(define)
    port = configuration.get("rest.port", "8081")
    log = private_folder(temporary_folder() / "sessions") / f"{port}.log"
    url = f"http://localhost:{port}"
    if port != "0" and _is_session(url):
        raise UsageError(
            f"a session cluster already runs at {url}",
            remedy=f"use it with penstock run -m {url}, stop it with penstock session stop -m {url}, or set another port with "
            "-D rest.port=PORT",
        )
    typer.echo("The session cluster starts.")
    command = [sys.executable, "-u", "-m", "penstock.cli", "session", "--local"]
    for definition in define or ():
        command += ["-D", definition]
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = _wait_until_ready(child, log)
    typer.echo(f"Session cluster at {url}, process {child.pid}. Its log is {log}")
    option = "" if url == DEFAULT_MASTER else f" -m {url}"
    typer.echo(f"Run a program: penstock run -m {url} job.py")
    typer.echo(f"Show its page: penstock dashboard{option}   List its jobs: penstock list{option}")
    typer.echo(f"Stop it: penstock session stop{option}")


def _wait_until_ready(child: subprocess.Popen[bytes], log: Path) -> str:
    """Return the URL of the session that the process serves."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        lines = log.read_text(errors="replace").splitlines()
        found = next((line.removeprefix(_READY) for line in lines if line.startswith(_READY)), None)
        if found is not None:
            return found
        if child.poll() is not None:
            shown = "\n".join(f"  {line}" for line in lines[-20:])
            raise OperationFailed(
                f"the session cluster has ended with exit code {child.returncode}. End of its output:\n{shown}",
                remedy=f"the complete output is {log}",
            )
        time.sleep(0.05)
    child.terminate()
    raise OperationFailed(f"the session cluster did not start within {START_S:.0f} s", remedy=f"read {log}")


def _is_session(url: str) -> bool:
    """Return whether a session cluster of this user responds at the URL."""
    try:
        RestClient(url, timeout=2.0).programs()
    except (MasterUnreachable, RequestFailed):
        return False
    return True


@app.command("list")
def list_sessions() -> None:
    """List the session clusters of this user on this machine."""
    found = table("URL", "running jobs", "free slots", right=("running jobs",))
    for url in published_urls():
        if not _is_session(url):
            continue  # it has ended, or it is the JobManager of a single program
        overview = RestClient(url, timeout=2.0).overview()
        found.add_row(url, str(overview.jobs_running), f"{overview.slots_available} of {overview.slots_total}")
    if not found.row_count:
        typer.echo("No session cluster runs on this machine. Start one with: penstock session start")
        return
    show(found)


@app.command("stop")
def stop(master: Master = DEFAULT_MASTER, token_file: TokenFile = None) -> None:
    """Cancel the jobs of a session cluster, and stop it."""
    client = connect(master, token_file)
    client.programs()
    client.shut_down()
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        try:
            client.overview()
        except (MasterUnreachable, RequestFailed):
            typer.echo(f"The session cluster at {client.url} has stopped.")
            return
        time.sleep(0.2)
    raise OperationFailed(
        f"the session cluster at {client.url} still runs after {STOP_S:.0f} s",
        remedy="read its log, and end its process",
    )
