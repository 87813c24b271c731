"""`kubectl penstock`, with a kubectl that knows one FlinkJob and forwards to a REST server of this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from penstock.cli.kubectl import Kubectl
from penstock.rest.server import RestServer
from tests.unit.rest.access.current import Current
from tests.unit.rest.fake_gateway import JOB_ID, FakeGateway

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway

KUBECTL = textwrap.dedent(
    """\
    #!{python} -IS
    import base64, json, os, sys, time
    arguments = sys.argv[1:]
    folder = os.environ["FAKE"]
    with open(folder + "/called", "a") as file:
        file.write(json.dumps(arguments) + "\\n")
    while arguments[0].startswith("--"):
        del arguments[:2]
    what = arguments[:3]
    objects = {{}}
    if os.path.exists(folder + "/objects"):
        with open(folder + "/objects") as file:
            objects = json.load(file)
    if arguments[0] == "port-forward":
        if os.path.exists(folder + "/no-pod"):
            sys.exit("error: unable to forward port because pod is not running")
        print("Forwarding from 127.0.0.1:" + os.environ["FAKE_PORT"] + " -> 8081", flush=True)
        if os.path.exists(folder + "/many-connections"):
            for stream in (sys.stdout, sys.stderr):
                for number in range(10000):
                    print("Handling connection for 8081", file=stream, flush=True)
            open(folder + "/handled", "w").close()
        time.sleep(600)
    elif arguments[0] == "get" and " ".join(what[1:]) in objects:
        print(json.dumps(objects[" ".join(what[1:])]))
    elif what == ["get", "flinkjob", "orders"]:
        print("{{}}")
    elif what == ["get", "secret", "orders-secrets"]:
        print(json.dumps({{"data": {{"rest-token": base64.b64encode(b"s3same").decode()}}}}))
    elif arguments[0] == "create":
        with open(folder + "/made", "w") as file:
            file.write(sys.stdin.read())
        print(json.dumps({{"metadata": {{"name": "orders-x7"}}}}))
    elif what == ["get", "flinksnapshot", "orders-x7"]:
        with open(folder + "/status") as file:
            print(json.dumps({{"status": json.load(file)}}))
    elif arguments[0] == "get" and arguments[1] == "flinkjobs":
        print("NAME STATE\\norders Running")
    else:
        sys.exit('Error from server (NotFound): ' + " ".join(what[1:]) + " not found")
    """
)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestServer, Current]]:
    """Start one REST server with a token for all tests, and return it with its gateway, which each test replaces."""
    token, gateway = tmp_path_factory.mktemp("master") / "token", Current()
    token.write_text("s3same")
    with RestServer(cast("ClusterGateway", gateway), "127.0.0.1", 0, str(token)) as server:
        yield server, gateway


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: tuple[RestServer, Current]) -> Path:
    server, shared = master
    shared.gateway = FakeGateway()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    for name, value in {"KUBECTL": str(kubectl), "FAKE": str(tmp_path), "FAKE_PORT": str(server.port)}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.kubectl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def called(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "called").read_text().splitlines()]


def test_a_command_runs_on_the_job_of_the_flinkjob(folder: Path) -> None:
    done = run("info", "orders", "-n", "team", "--context", "prod")
    assert done.returncode == 0, done.stderr
    assert "Socket Window WordCount" in done.stdout
    assert JOB_ID in done.stdout
    assert all(call[:4] == ["--namespace", "team", "--context", "prod"] for call in called(folder))
    assert "s3same" not in str(called(folder))


def test_options_are_passed_to_the_command(folder: Path) -> None:
    done = run("flamegraph", "orders", "--vertex", "Window", "-s", "0.1")
    assert done.stdout == "MainThread;app.count:3 5\n" * 2
    assert "tm-0 | " in run("logs", "orders", "--operator", "Window").stdout


def test_an_error_of_the_command_keeps_its_exit_code(folder: Path) -> None:
    done = run("flamegraph", "orders", "--vertex", "Sort")
    assert done.returncode == 1
    assert "has no vertex 'Sort'" in done.stderr


def test_no_process_remains(folder: Path) -> None:
    run("info", "orders")
    found = subprocess.run(["pgrep", "-f", str(folder / "kubectl")], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_a_missing_flinkjob_is_reported_with_the_message_of_kubectl(folder: Path) -> None:
    done = run("top", "nothing")
    assert done.returncode == 1
    assert "error [KUBECTL]: Error from server (NotFound): flinkjob nothing not found" in done.stderr


def test_a_master_that_does_not_run_is_reported(folder: Path) -> None:
    (folder / "no-pod").touch()
    done = run("info", "orders")
    assert done.returncode == 1
    assert (
        "no connection to service orders-rest: error: unable to forward port because pod is not running" in done.stderr
    )


def test_a_missing_kubectl_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", "/no/kubectl")
    done = run("list")
    assert done.returncode == 1
    assert "kubectl is not on the PATH" in done.stderr


def test_flinkjobs_are_listed(folder: Path) -> None:
    assert run("list", "-A").stdout == "NAME STATE\norders Running\n"
    assert called(folder) == [["get", "flinkjobs", "--all-namespaces"]]


def test_a_savepoint_is_a_flinksnapshot(folder: Path) -> None:
    (folder / "status").write_text(json.dumps({"state": "Completed", "path": "s3://b/savepoint-1"}))
    done = run("savepoint", "orders")
    assert done.stdout == "s3://b/savepoint-1\n"
    made = json.loads((folder / "made").read_text())
    assert (made["kind"], made["spec"]) == ("FlinkSnapshot", {"jobRef": {"name": "orders"}, "savepoint": {}})


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"state": "Failed", "message": "the disk is full"}, "is Failed: the disk is full"),
        ({"state": "InProgress"}, "is not complete after 1 s"),
    ],
)
def test_a_savepoint_that_is_not_taken_in_time_is_reported(folder: Path, status: dict[str, str], message: str) -> None:
    (folder / "status").write_text(json.dumps(status))
    done = run("savepoint", "orders", "--timeout", "1")
    assert done.returncode == 1
    assert message in done.stderr


def test_the_dashboard_survives_any_number_of_connections(folder: Path) -> None:
    """kubectl writes a line for each connection, and blocks if its output is not read."""
    (folder / "many-connections").touch()
    with Kubectl().forwarded("orders-rest", 8081) as port:
        assert port == int(os.environ["FAKE_PORT"])
        until = time.monotonic() + 30
        while not (folder / "handled").exists():
            assert time.monotonic() < until, "kubectl is stuck in writing"
            time.sleep(0.02)


def test_the_dashboard_is_open_until_the_command_is_interrupted(folder: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.kubectl", "dashboard", "orders", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f"http://localhost:{os.environ['FAKE_PORT']}/" in process.stdout.readline()
        assert process.stdout.readline() == "s3same\n"
        process.terminate()
    found = subprocess.run(["pgrep", "-f", str(folder / "kubectl")], capture_output=True, text=True, check=False)
    assert found.stdout == ""
