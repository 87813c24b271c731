from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import start
from penstock.cli.main import app
from penstock.common.errors import ClusterError
from tests.unit.cli.fake_launch import FakeLaunch

WORKER = ["penstock", "worker", "--master", "shop-master-1.default.svc:7077", "--slots", "2"]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    fake = FakeLaunch()
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.process.launch", fake)
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.process.worker.worker_launch", fake)
    return fake


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as ended:
        start.main()
    return ended.value.code


def test_a_worker_that_the_operator_starts_does_not_load_the_command_line(
    monkeypatch: pytest.MonkeyPatch, launch: FakeLaunch
) -> None:
    monkeypatch.setitem(sys.modules, "penstock.cli.main", None)
    assert run(monkeypatch, *WORKER) == 0
    assert launch.calls == [("run_worker", {"master": "shop-master-1.default.svc:7077", "slots": 2})]


def test_a_job_starts_without_the_imports_of_other_commands(tmp_path: Path) -> None:
    """The client of REST and its models take 0.3 s."""
    script = tmp_path / "job.py"
    script.write_text(
        "import sys; print(sorted({'httpx', 'rich', 'penstock.cli.main', 'penstock.rest.models'} & set(sys.modules)))"
    )
    command = [sys.executable, "-m", "penstock.cli", "run", "--in-process", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "[]\n", ended.stderr


@pytest.mark.parametrize("command", ["run", "master"])
def test_the_application_of_one_command_has_the_same_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(monkeypatch, "penstock", command, "--help") == 0
    alone = capsys.readouterr().out
    assert "Usage: penstock" in alone
    with pytest.raises(SystemExit):
        app([command, "--help"], prog_name="penstock")
    assert capsys.readouterr().out == alone


def test_other_arguments_start_the_command_line(
    monkeypatch: pytest.MonkeyPatch, launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "penstock", "worker", "--slots", "3", "--master", "a:1") == 0
    assert launch.calls == [("run_worker", {"master": "a:1", "slots": 3})]
    assert run(monkeypatch, *WORKER[:3], "nowhere", *WORKER[4:]) != 0
    assert "nowhere" in capsys.readouterr().err


def test_an_error_at_the_start_of_a_worker_is_printed_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> int:
        raise ClusterError("no secret", remedy="write one")

    monkeypatch.setattr(launch, "run_worker", fail)
    assert run(monkeypatch, *WORKER) == 1
    output = capsys.readouterr().err
    assert "no secret" in output
    assert "write one" in output


@pytest.mark.parametrize("error", [OSError("no access with hunter22"), ClusterError("no access with hunter22")])
def test_an_error_of_a_master_hides_the_secrets_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, launch: FakeLaunch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """Kubernetes copies the end of the output to the pod's status, and the operator copies that to conditions."""

    def run_master(**arguments: object) -> int:
        raise error

    monkeypatch.setenv("DATABASE_PASSWORD", "hunter22")
    monkeypatch.setattr(launch, "run_master", run_master)
    assert run(monkeypatch, "penstock", "master", "--entry", "job.py", "--fresh", "--job-id", "ab" * 16) == 1
    output = capsys.readouterr().err
    assert "no access with ******" in output
    assert "hunter22" not in output
