"""`penstock run` runs a program on an embedded cluster of this machine, in the foreground or detached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, TokenFile
from penstock.cli.application import OPTIONS_FIRST
from penstock.cli.commands.sessions.remote_run import (
    check_local_options,
    check_remote_options,
    configured_master,
    run_remotely,
)
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.engine import launcher
from penstock.cli.errors import OperationFailed, UsageError, show_program_error
from penstock.common.errors import PenstockError
from penstock.common.folders.owned_folder import OwnedFolder, sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_LOG_LINES = 25
_FOLDERS = "penstock-run-"
_KEPT_FOLDERS = 5
"""Number of folders of ended detached runs that keep their logs."""


Program = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="The program: a Python or SQL file, or for a cluster also a folder, an archive or a wheel.",
    ),
]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the program.")]
Detached = Annotated[bool, typer.Option("-d", "--detached", help="Print the job's id and return.")]
Parallelism = Annotated[int | None, typer.Option("-p", "--parallelism", min=1, help="Default parallelism.")]
SavepointPath = Annotated[
    str | None, typer.Option("-s", "--fromSavepoint", metavar="PATH", help="Start from this savepoint or checkpoint.")
]
Uids = Annotated[
    list[str] | None,
    typer.Option(
        "-n",
        "--allow-non-restored-state",
        metavar="UID",
        help="Uid of an operator whose state may be dropped. Can be repeated.",
    ),
]
InProcess = Annotated[
    bool,
    typer.Option(
        "--in-process",
        help="Run all tasks in one process without Spark. The job starts immediately, and breakpoints work.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--master",
        metavar="URL",
        help="Run the program on this session cluster. Default: PENSTOCK_MASTER, or rest.address of the configuration. Not set: on "
        "this machine.",
    ),
]
Entry = Annotated[
    str | None,
    typer.Option("-c", "--entry", metavar="FILE.py|MODULE:FUNCTION", help="Start of a program on a cluster."),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--file",
        metavar="PATH",
        help="Another file or folder that a program on a cluster needs. Can be repeated.",
    ),
]
Requirements = Annotated[
    str | None,
    typer.Option("-r", "--requirements", metavar="FILE", help="File with the packages of a program on a cluster."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("run", context_settings=OPTIONS_FIRST)(run)


def run(
    script: Program,
    args: Arguments = None,
    detached: Detached = False,
    parallelism: Parallelism = None,
    savepoint_path: SavepointPath = None,
    allow_non_restored_state: Uids = None,
    define: Definitions = None,
    in_process: InProcess = False,
    master: Cluster = None,
    token_file: TokenFile = None,
    entry: Entry = None,
    files: Files = None,
    requirements: Requirements = None,
    report_to: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a program on this machine, or on a session cluster. Options go before PROGRAM, its arguments after it."""
    uids = allow_non_restored_state or []
    if master is None and report_to is None and not in_process:
        master = os.environ.get("PENSTOCK_MASTER") or configured_master(parse_definitions(define))
    if master is not None:
        check_remote_options(in_process=in_process)
        run_remotely(
            master,
            token_file,
            script,
            args or [],
            entry=entry,
            detached=detached,
            parallelism=parallelism,
            savepoint_path=savepoint_path,
            allow_non_restored_state=uids,
            configuration=parse_definitions(define),
            files=files or [],
            requirements=requirements,
        )
        return
    check_local_options({"-c": entry, "-f": files, "-r": requirements})
    check_arguments(script, uids)
    if in_process:
        define = [*(define or []), "penstock.runner=in-process"]
    parse_definitions(define)  # before a process is started
    arguments = RunArguments(script, args or [], parallelism, savepoint_path, uids, define or [])
    if detached:
        _detach(arguments)
    else:
        _run_here(arguments, report_to)


def _run_here(arguments: RunArguments, report_to: Path | None) -> None:
    """Run the program in this process.

    Args:
        report_to: file for the id and the URL of the first job, if this process was started by `run -d`.
    """

    def on_submitted(job_id: str, name: str, url: str) -> None:
        if report_to is not None:
            _report(report_to, job_id, name, url)
        typer.echo(f"Job has been submitted with JobID {job_id}")

    try:
        launcher().run_script(
            script=arguments.script,
            args=arguments.args,
            parallelism=arguments.parallelism,
            savepoint_path=arguments.savepoint_path,
            allow_non_restored_state=arguments.allow_non_restored_state,
            configuration=parse_definitions(arguments.definitions),
            on_submitted=on_submitted,
            is_detached=report_to is not None,
        )
    except (PenstockError, KeyboardInterrupt):
        raise
    except Exception as error:
        show_program_error(error, arguments.script)
        raise typer.Exit(1) from None


def check_arguments(script: str, uids: Sequence[str] = ()) -> None:
    """Check that the script exists, and that no uid is a file."""
    scripts = [uid for uid in uids if uid.endswith(".py")]
    if scripts:
        raise UsageError(
            f"-n {scripts[0]} is a file, not the uid of an operator",
            remedy=f"pass the uid of the operator whose state may be dropped: penstock run -n UID {scripts[0]}",
        )
    if not Path(script).is_file():
        raise UsageError(
            f"the program {script} does not exist",
            remedy=f"pass the path of a Python or SQL file. The current folder is {Path.cwd()}",
        )


def _report(path: Path, job_id: str, name: str, url: str) -> None:
    """Write the id, name and URL of the first job to the file that `run -d` waits for. The file appears atomically."""
    if path.exists():
        return
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"job_id": job_id, "name": name, "url": url}))
    draft.rename(path)


@dataclass(frozen=True)
class RunArguments:
    """Arguments of `run`, to pass them to a process in the background."""

    script: str
    args: Sequence[str] = ()
    parallelism: int | None = None
    savepoint_path: str | None = None
    allow_non_restored_state: Sequence[str] = ()
    definitions: Sequence[str] = ()

    def words(self, report_to: Path) -> list[str]:
        """Return the arguments as words of a command line.

        >>> RunArguments("job.py", ["-d"], 2).words(Path("/r"))
        ['run', '--report-to', '/r', '-p', '2', 'job.py', '-d']
        """
        words = ["run", "--report-to", str(report_to)]
        if self.parallelism is not None:
            words += ["-p", str(self.parallelism)]
        if self.savepoint_path is not None:
            words += ["-s", self.savepoint_path]
        for uid in self.allow_non_restored_state:
            words += ["-n", uid]
        for definition in self.definitions:
            words += ["-D", definition]
        return [*words, self.script, *self.args]


def _detach(arguments: RunArguments) -> None:
    """Run the same command in a process with its own session. Return when that process has started a job."""
    parent = tempfile.gettempdir()
    sweep(parent, _FOLDERS, newest=_KEPT_FOLDERS)
    owned = OwnedFolder(parent, _FOLDERS, sweeps=False)
    report, log = Path(owned.path, "job.json"), Path(owned.path, "log")
    command = [sys.executable, "-m", "penstock.cli", *arguments.words(report)]
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[owned.lock],  # the process owns the folder until it ends
        )
    try:
        while not report.exists():
            if child.poll() is not None:
                if not report.exists():
                    raise OperationFailed(
                        _ended(arguments.script, child.returncode, log), remedy=f"the complete log is {log}"
                    )
                break
            time.sleep(0.05)
    except KeyboardInterrupt:
        child.terminate()
        raise
    found = json.loads(report.read_text())
    typer.echo(f"Job has been submitted with JobID {found['job_id']}")
    typer.echo(f"Its process id is {child.pid}. Its log is {log}")
    if found["url"] and found["url"] != DEFAULT_MASTER:
        typer.echo(f"Its JobManager is at {found['url']}. Pass this address to other commands with -m")


def _ended(script: str, code: int, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    shown = "\n".join(f"  {line}" for line in lines[-_SHOWN_LOG_LINES:])
    problem = f"{script} ended before it started a job" if code == 0 else f"{script} failed with exit code {code}"
    return f"{problem}. End of its output:\n{shown}" if shown else problem
