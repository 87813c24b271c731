"""`kubectl penstock`, with a kubectl that knows one FlinkJob and forwards to a REST server of this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.rest.server import RestServer
from tests.unit.rest.fake_gateway import JOB_ID, FakeGateway

KUBECTL = textwrap.dedent(
    """\
    #!{python}
    import base64, json, os, sys, time
    arguments = sys.argv[1:]
    folder = os.environ["FAKE"]
    with open(folder + "/called", "a") as file:
        file.write(json.dumps(arguments) + "\\n")
    while arguments[0].startswith("--"):
        del arguments[:2]
    what = arguments[:3]
    if arguments[0] == "port-forward":
        if os.path.exists(folder + "/no-pod"):
            sys.exit("error: unable to forward port because pod is not running")
        print("Forwarding from 127.0.0.1:" + os.environ["FAKE_PORT"] + " -> 8081", flush=True)
        time.sleep(600)
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "token").write_text("s3same")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    server = RestServer(FakeGateway(), "127.0.0.1", 0, str(tmp_path / "token")).start()
    for name, value in {"KUBECTL": str(kubectl), "FAKE": str(tmp_path), "FAKE_PORT": str(server.port)}.items():
        monkeypatch.setenv(name, value)
    yield tmp_path
    server.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.kubectl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def called(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "called").read_text().splitlines()]


def test_a_command_is_run_on_the_job_behind_the_flinkjob(folder: Path) -> None:
    done = run("info", "orders", "-n", "team", "--context", "prod")
    assert done.returncode == 0, done.stderr
    assert "Socket Window WordCount" in done.stdout
    assert JOB_ID in done.stdout
    assert all(call[:4] == ["--namespace", "team", "--context", "prod"] for call in called(folder))
    assert "s3same" not in str(called(folder))


def test_options_are_those_of_the_command(folder: Path) -> None:
    done = run("flamegraph", "orders", "--vertex", "Window", "-s", "0.1")
    assert done.stdout == "MainThread;app.count:3 5\n" * 2
    assert "tm-0 | " in run("logs", "orders", "--operator", "Window").stdout


def test_what_goes_wrong_behind_it_is_told_with_its_code(folder: Path) -> None:
    done = run("flamegraph", "orders", "--vertex", "Sort")
    assert done.returncode == 1
    assert "has no vertex 'Sort'" in done.stderr


def test_nothing_is_left_running(folder: Path) -> None:
    run("info", "orders")
    found = subprocess.run(["pgrep", "-f", str(folder / "kubectl")], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_a_flinkjob_that_is_not_there_is_told_as_kubectl_tells_it(folder: Path) -> None:
    done = run("top", "nothing")
    assert done.returncode == 1
    assert "error [KUBECTL]: Error from server (NotFound): flinkjob nothing not found" in done.stderr


def test_a_master_that_does_not_run_is_told(folder: Path) -> None:
    (folder / "no-pod").touch()
    done = run("info", "orders")
    assert done.returncode == 1
    assert (
        "no connection to service orders-rest: error: unable to forward port because pod is not running" in done.stderr
    )


def test_no_kubectl_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", "/no/kubectl")
    done = run("list")
    assert done.returncode == 1
    assert "there is no kubectl" in done.stderr


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
    ("status", "told"),
    [
        ({"state": "Failed", "message": "the disk is full"}, "is Failed: the disk is full"),
        ({"state": "InProgress"}, "is not complete after 1 s"),
    ],
)
def test_a_savepoint_that_does_not_come_is_told(folder: Path, status: dict[str, str], told: str) -> None:
    (folder / "status").write_text(json.dumps(status))
    done = run("savepoint", "orders", "--timeout", "1")
    assert done.returncode == 1
    assert told in done.stderr


def test_the_dashboard_is_open_until_it_is_ended(folder: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.kubectl", "dashboard", "orders", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f"http://localhost:{os.environ['FAKE_PORT']}/" in process.stdout.readline()
        assert process.stdout.readline() == "s3same\n"
        process.terminate()
    found = subprocess.run(["pgrep", "-f", str(folder / "kubectl")], capture_output=True, text=True, check=False)
    assert found.stdout == ""
