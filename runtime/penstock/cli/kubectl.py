"""`kubectl penstock`: commands for a job on Kubernetes. The user gives the name of its FlinkJob. kubectl finds this
program on the PATH as `kubectl-penstock`.

All access goes through `kubectl`, with its contexts and permissions. This program forwards a local port to the job's
REST API, reads the job's token from its Secret, and creates FlinkSnapshots. Commands receive the token in a file that
only its owner can read, never on a command line.
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
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Annotated, Any

import typer

from penstock.cli.access.connection import client_tls
from penstock.cli.application import PenstockGroup
from penstock.cli.client import RestClient
from penstock.cli.errors import UsageError
from penstock.cli.main import app as commands
from penstock.common.errors import PenstockError
from penstock.common.job_status import GLOBALLY_TERMINAL

FORWARD_S = 30.0
MAX_LINES = 20
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_OF_A_JOB = ("info", "top", "checkpoints", "checkpoint", "flamegraph", "peek")
"""Commands of `penstock` that have a JOB argument."""
_OF_ITS_CLUSTER = ("logs", "stacks", "cluster")


class KubectlFailed(PenstockError):
    """Error of a missing kubectl, or of a refused call."""

    code = "KUBECTL"


class _LastLines:
    """Last lines of a process's output.

    A thread reads all output. kubectl writes a line per connection, and would block on a full pipe.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._thread = threading.Thread(target=self._read, args=(stream,), name="kubectl-output", daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str] | None) -> None:
        with suppress(OSError, ValueError):  # the stream is closed at the end
            self._lines.extend(stream or ())

    def text(self) -> str:
        """Return the lines after the process has ended."""
        self._thread.join(FORWARD_S)
        return "".join(self._lines).strip()


class Kubectl:
    """Wrapper of kubectl with an optional namespace and context."""

    def __init__(self, namespace: str | None = None, context: str | None = None) -> None:
        self._flags = [*(["--namespace", namespace] if namespace else []), *(["--context", context] if context else [])]

    def command(self, *arguments: str) -> list[str]:
        return [os.environ.get("KUBECTL", "kubectl"), *self._flags, *arguments]

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output.

        Raises:
            KubectlFailed: the call failed. The error contains kubectl's output.
        """
        try:
            done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise KubectlFailed(
                "kubectl is not on the PATH", remedy="install kubectl, or set KUBECTL to its path"
            ) from None
        if done.returncode:
            raise KubectlFailed(done.stderr.strip() or f"kubectl {arguments[0]} ended with code {done.returncode}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    @contextmanager
    def forwarded(self, service: str, port: int, local_port: int = 0) -> Iterator[int]:
        """Forward a local port during the block, and yield its number.

        Raises:
            KubectlFailed: the connection failed. The error contains kubectl's output.
        """
        command = self.command(
            "port-forward", f"service/{service}", f"{local_port or ''}:{port}", "--address", "127.0.0.1"
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                last_lines = _LastLines(process.stderr)
                line = process.stdout.readline()
                found = _FORWARDING.search(line)
                if found is None:
                    process.wait(FORWARD_S)
                    raise KubectlFailed(
                        f"no connection to service {service}: {last_lines.text() or line.strip()}",
                        remedy="check whether the master runs: kubectl get pods -l penstock.dev/job",
                    )
                _LastLines(process.stdout)
                yield int(found[1])
            finally:
                process.terminate()


def token_of(kubectl: Kubectl, name: str) -> str:
    """Return the token of a job.

    Raises:
        KubectlFailed: the FlinkJob does not exist, or its Secret cannot be read.
    """
    kubectl.get("flinkjob", name)  # the error of this call names the missing FlinkJob
    secret = kubectl.get("secret", f"{name}-secrets")
    return base64.b64decode(secret["data"]["rest-token"]).decode()


def tls_of(kubectl: Kubectl, name: str) -> tuple[str, str] | None:
    """Return the CA of a job's master in PEM and the name in its certificate, or None if the master serves plain HTTP.

    The values come from the FlinkJob's status. The CA is empty if the Secret has no CA. Then the system's CAs are used.

    Raises:
        KubectlFailed: the FlinkJob does not exist, or the Secret cannot be read.
    """
    job = kubectl.get("flinkjob", name)
    secret = ((job.get("status") or {}).get("running") or {}).get("restTls")
    if not secret:
        return None
    ca = (kubectl.get("secret", secret).get("data") or {}).get("ca.crt", "")
    return base64.b64decode(ca).decode(), f"{name}-rest.{job['metadata']['namespace']}.svc"


app = typer.Typer(
    name="kubectl penstock",
    cls=PenstockGroup,
    help="Inspect jobs on Kubernetes, take savepoints and open the dashboard. A job is named by its FlinkJob.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Name = Annotated[str, typer.Argument(metavar="FLINKJOB", help="Name of the FlinkJob.")]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Namespace of the FlinkJob. Default: the namespace of the context."),
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]


@app.command("list")
def list_jobs(
    namespace: Namespace = None,
    everywhere: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="List the FlinkJobs of all namespaces.")
    ] = False,
    context: Context = None,
) -> None:
    """List FlinkJobs with state, parallelism, age of the newest checkpoint and restarts."""
    where = ["--all-namespaces"] if everywhere else []
    typer.echo(Kubectl(namespace, context).run("get", "flinkjobs", *where), nl=False)


@app.command()
def dashboard(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0 means any free port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the dashboard in a browser.")] = True,
) -> None:
    """Open the job's dashboard until Ctrl-C. Prints the token for the login."""
    kubectl = Kubectl(namespace, context)
    token = token_of(kubectl, name)
    tls = tls_of(kubectl, name)
    with kubectl.forwarded(f"{name}-rest", 8081, port) as local:
        url = f"{'http' if tls is None else 'https'}://localhost:{local}/"
        typer.echo(f"The dashboard of {name} is at {url} until Ctrl-C; log in with\n{token}")
        if tls is not None:
            typer.echo(f"The browser warns, because the certificate is for {tls[1]} and not for localhost.", err=True)
        if browser:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


@app.command()
def savepoint(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait for the result.")
    ] = 600.0,
) -> None:
    """Create a FlinkSnapshot of the job, wait until it is complete, and print its path. The operator's retention rules apply to it."""
    kubectl = Kubectl(namespace, context)
    kubectl.get("flinkjob", name)
    manifest = {
        "apiVersion": "penstock.dev/v1beta1",
        "kind": "FlinkSnapshot",
        "metadata": {"generateName": f"{name}-"},
        "spec": {"jobRef": {"name": name}, "savepoint": {}},
    }
    snapshot = json.loads(kubectl.run("create", "-f", "-", "-o", "json", stdin=json.dumps(manifest)))["metadata"][
        "name"
    ]
    typer.echo(f"flinksnapshot/{snapshot} created", err=True)
    deadline = time.monotonic() + timeout
    while True:
        status = kubectl.get("flinksnapshot", snapshot).get("status") or {}
        if status.get("state") == "Completed":
            typer.echo(status["path"])
            return
        if status.get("state") in ("Failed", "Abandoned"):
            raise KubectlFailed(
                f"flinksnapshot/{snapshot} is {status['state']}: {status.get('message') or 'without a reason'}"
            )
        if time.monotonic() > deadline:
            raise KubectlFailed(
                f"flinksnapshot/{snapshot} is not complete after {timeout:g} s",
                remedy=f"the snapshot continues: kubectl get flinksnapshot {snapshot} -w",
            )
        time.sleep(0.5)


def _add(command: str, *, takes_job: bool) -> None:
    @app.command(
        command,
        help=f"Run `penstock {command}` for the job, with all options of `penstock {command}`.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context_of_typer: typer.Context, name: Name, namespace: Namespace = None, context: Context = None) -> None:
        kubectl = Kubectl(namespace, context)
        token = token_of(kubectl, name)
        tls = tls_of(kubectl, name)
        with (
            kubectl.forwarded(f"{name}-rest", 8081) as port,
            tempfile.NamedTemporaryFile("w", prefix="penstock-token-") as file,
            tempfile.NamedTemporaryFile("w", prefix="penstock-ca-") as ca_file,
        ):
            file.write(token)
            file.flush()
            ca, server_name = tls or ("", "")
            ca_file.write(ca)
            ca_file.flush()
            master = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
            trusted = ca_file.name if ca else None
            job = [_job_of(master, token, name, trusted, server_name)] if takes_job else []
            arguments = [command, *context_of_typer.args, *job, "-m", master, "--token-file", file.name]
            arguments += ["--tls-server-name", server_name] if server_name else []
            arguments += ["--ca-file", trusted] if trusted else []
            code = commands(args=arguments, standalone_mode=False)
        if code:
            raise typer.Exit(int(code))


for _command in _OF_A_JOB:
    _add(_command, takes_job=True)
for _command in _OF_ITS_CLUSTER:
    _add(_command, takes_job=False)


def _job_of(master: str, token: str, name: str, ca_file: str | None, server_name: str) -> str:
    """Return the job that the FlinkJob's master runs, or the last job that the master ran."""
    client = RestClient(master, token, tls=client_tls(ca_file), server_name=server_name or None)
    try:
        jobs = sorted(client.jobs(), key=lambda job: (job.state not in GLOBALLY_TERMINAL, job.start_time))
    finally:
        client.close()
    if not jobs:
        raise UsageError(
            f"the master of {name} has no job yet",
            remedy=f"run `kubectl describe flinkjob {name}`: it shows what the FlinkJob waits for",
        )
    return jobs[-1].jid


def main() -> None:
    # End the port-forward together with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    app(prog_name="kubectl penstock")


if __name__ == "__main__":
    main()
