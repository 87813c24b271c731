"""`kubectl penstock`: the command line of a job on Kubernetes, by the name of its FlinkJob. kubectl finds it on the PATH as `kubectl-penstock`.

Everything goes through `kubectl`, with its contexts and rights: it forwards a port of this machine to the job's REST API, reads the job's token
from its Secret, and makes FlinkSnapshots. The token goes to the commands in a file that only its owner can read, never on a command line.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from penstock.cli.client import RestClient
from penstock.cli.connection import ENDED
from penstock.cli.errors import UsageError
from penstock.cli.main import PenstockGroup
from penstock.cli.main import app as commands
from penstock.common.errors import PenstockError

FORWARD_S = 30.0
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_OF_A_JOB = ("info", "top", "checkpoints", "checkpoint", "flamegraph")
"""Commands of `penstock` that take a JOB."""
_OF_ITS_CLUSTER = ("logs", "stacks", "cluster")


class KubectlFailed(PenstockError):
    """kubectl is not there, or refuses."""

    code = "KUBECTL"


class Kubectl:
    """Runs kubectl, in a namespace and a context if they are given."""

    def __init__(self, namespace: str | None = None, context: str | None = None) -> None:
        self._flags = [*(["--namespace", namespace] if namespace else []), *(["--context", context] if context else [])]

    def command(self, *arguments: str) -> list[str]:
        return [os.environ.get("KUBECTL", "kubectl"), *self._flags, *arguments]

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """
        Raises:
            KubectlFailed: with what kubectl says.
        """
        try:
            done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise KubectlFailed("there is no kubectl on the PATH", remedy="install it, or name it in KUBECTL") from None
        if done.returncode:
            raise KubectlFailed(done.stderr.strip() or f"kubectl {arguments[0]} ended with code {done.returncode}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    @contextmanager
    def forwarded(self, service: str, port: int, local_port: int = 0) -> Iterator[int]:
        """A port of this machine that leads there, for as long as the block lasts.

        Raises:
            KubectlFailed: the connection cannot be made; with what kubectl says.
        """
        command = self.command(
            "port-forward", f"service/{service}", f"{local_port or ''}:{port}", "--address", "127.0.0.1"
        )
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = _FORWARDING.search(line)
                if found is None:
                    process.wait(FORWARD_S)
                    said.seek(0)
                    raise KubectlFailed(
                        f"no connection to service {service}: {said.read().strip() or line.strip()}",
                        remedy="see whether its master runs: kubectl get pods -l penstock.dev/job",
                    )
                yield int(found[1])
            finally:
                process.terminate()


def token_of(kubectl: Kubectl, name: str) -> str:
    """
    Raises:
        KubectlFailed: there is no FlinkJob of the name, or its Secret may not be read.
    """
    kubectl.get("flinkjob", name)  # names what is missing
    secret = kubectl.get("secret", f"{name}-secrets")
    return base64.b64decode(secret["data"]["rest-token"]).decode()


app = typer.Typer(
    name="kubectl penstock",
    cls=PenstockGroup,
    help="Jobs on Kubernetes, by the names of their FlinkJobs: look at them, take savepoints, open the dashboard.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Name = Annotated[str, typer.Argument(metavar="FLINKJOB", help="Name of the FlinkJob.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Of the FlinkJob; else the context's.")]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]


@app.command("list")
def list_jobs(
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Of all namespaces.")] = False,
    context: Context = None,
) -> None:
    """List FlinkJobs, with state, parallelism, age of the newest checkpoint and restarts."""
    where = ["--all-namespaces"] if everywhere else []
    typer.echo(Kubectl(namespace, context).run("get", "flinkjobs", *where), nl=False)


@app.command()
def dashboard(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0: any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
) -> None:
    """Open the job's dashboard, until Ctrl-C; prints the token to log in with."""
    kubectl = Kubectl(namespace, context)
    token = token_of(kubectl, name)
    with kubectl.forwarded(f"{name}-rest", 8081, port) as local:
        typer.echo(f"The dashboard of {name} is at http://localhost:{local}/ until Ctrl-C; log in with\n{token}")
        if browser:
            webbrowser.open(f"http://localhost:{local}/")
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


@app.command()
def savepoint(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait for it.")
    ] = 600.0,
) -> None:
    """Make a FlinkSnapshot of the job, wait until it is complete, and print its path. The operator keeps it by its rules."""
    kubectl = Kubectl(namespace, context)
    kubectl.get("flinkjob", name)
    manifest = {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkSnapshot",
        "metadata": {"generateName": f"{name}-"},
        "spec": {"jobRef": {"name": name}, "savepoint": {}},
    }
    made = json.loads(kubectl.run("create", "-f", "-", "-o", "json", stdin=json.dumps(manifest)))["metadata"]["name"]
    typer.echo(f"flinksnapshot/{made} is made", err=True)
    deadline = time.monotonic() + timeout
    while True:
        status = kubectl.get("flinksnapshot", made).get("status") or {}
        if status.get("state") == "Completed":
            typer.echo(status["path"])
            return
        if status.get("state") in ("Failed", "Abandoned"):
            raise KubectlFailed(
                f"flinksnapshot/{made} is {status['state']}: {status.get('message') or 'without a reason'}"
            )
        if time.monotonic() > deadline:
            raise KubectlFailed(
                f"flinksnapshot/{made} is not complete after {timeout:g} s",
                remedy=f"it goes on: kubectl get flinksnapshot {made} -w",
            )
        time.sleep(0.5)


def _add(command: str, *, takes_job: bool) -> None:
    @app.command(
        command,
        help=f"`penstock {command}` of the job; its other options are those of `penstock {command}`.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context_of_typer: typer.Context, name: Name, namespace: Namespace = None, context: Context = None) -> None:
        kubectl = Kubectl(namespace, context)
        token = token_of(kubectl, name)
        with (
            kubectl.forwarded(f"{name}-rest", 8081) as port,
            tempfile.NamedTemporaryFile("w", prefix="penstock-token-") as file,
        ):
            file.write(token)
            file.flush()
            master = f"http://127.0.0.1:{port}"
            job = [_job_of(master, token, name)] if takes_job else []
            arguments = [command, *context_of_typer.args, *job, "-m", master, "--token-file", file.name]
            code = commands(args=arguments, standalone_mode=False)
        if code:
            raise typer.Exit(int(code))


for _command in _OF_A_JOB:
    _add(_command, takes_job=True)
for _command in _OF_ITS_CLUSTER:
    _add(_command, takes_job=False)


def _job_of(master: str, token: str, name: str) -> str:
    """The job that the FlinkJob's master runs, or ran last."""
    client = RestClient(master, token)
    try:
        jobs = sorted(client.jobs(), key=lambda job: (job.state not in ENDED, job.start_time))
    finally:
        client.close()
    if not jobs:
        raise UsageError(
            f"the master of {name} has no job yet", remedy=f"kubectl describe flinkjob {name} says what it waits for"
        )
    return jobs[-1].jid


def main() -> None:
    # So that what is forwarded ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    app(prog_name="kubectl penstock")


if __name__ == "__main__":
    main()
