"""A master that waits for its release checks its program in a forked process first. The operator reads the report in its log."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.release import ReleaseRecord, release
from penstock.cli.commands import roles
from penstock.cli.main import app
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.jobmanager.process import launch
from penstock.jobmanager.process.master import first_check, master_process
from penstock.jobmanager.process.master.first_check import fork_check
from penstock.jobmanager.process.master.master_process import run_master_process
from penstock.jobmanager.process.session.session import SubmitOptions
from penstock_operator.reconcile.observe import manifests
from penstock_operator.resources.deployments import CHECK_VARIABLE
from tests.in_process import InProcess

if TYPE_CHECKING:
    from pathlib import Path

JOB = "ab" * 16
GOOD = """
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

print("hello")
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).uid("in").print().uid("out")
env.execute("good")
"""


class Master:
    """A `penstock master` whose engine only waits for the check of the program."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capture = folder, capture
        self.checkpoints = f"file://{folder}/checkpoints"
        self.out = self.err = ""

    def run(self, program: str, *, checkpoints: str = "") -> Any:
        script = self.folder / "job.py"
        script.write_text(program)
        place = f"execution.checkpointing.dir={checkpoints or self.checkpoints}"
        arguments = ["master", "--entry", str(script), "--when-released", "--job-id", JOB, "-D", place]
        try:
            return app(arguments, standalone_mode=False)
        finally:
            self.out, self.err = self.capture.readouterr()

    def report(self) -> dict[str, Any] | None:
        return manifests._report_of_master(f"{self.err}\n{self.out}")


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Master:
    monkeypatch.setenv(roles.BEFORE_RELEASE, "1")
    monkeypatch.setattr(launch, "CHECK_STORAGE_SECONDS", 0.2)
    monkeypatch.setattr(launch, "run_master", lambda **given: 0 if given["is_admitted"]() else 1)
    return Master(tmp_path, capfd)


def test_the_operator_knows_the_lines_in_the_log_and_the_variable() -> None:
    known = (manifests.CHECK_BEGINS, manifests.CHECK_REPORTS, CHECK_VARIABLE)
    assert known == (first_check.BEGINS, roles.CHECK_REPORTS, roles.BEFORE_RELEASE)


def test_a_program_that_can_run_is_admitted_and_has_not_run_in_the_master(master: Master) -> None:
    assert master.run(GOOD) == 0
    report = master.report()
    assert report is not None
    assert report["ok"]
    assert report["graph"]["name"] == "good"
    assert first_check.BEGINS in master.err
    assert "hello" in master.err, "the prints of the program are not between the lines of the report"


def test_a_program_with_an_error_is_refused_with_the_report_of_a_check(master: Master) -> None:
    assert master.run("import no_such_module\n") == 1
    report = master.report()
    assert report is not None
    assert [p["message"] for p in report["problems"]] == ["ModuleNotFoundError: No module named 'no_such_module'"]


@pytest.mark.parametrize(
    ("end", "described"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import sys; sys.exit(0)", "exit code 70"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_a_program_that_ends_its_check_ends_the_master_without_a_report(
    master: Master, end: str, described: str
) -> None:
    assert master.run(end) == 1
    assert f"the program ended the process that checks it ({described})" in master.err
    assert master.report() is None


def test_a_job_that_is_released_is_not_checked_again(master: Master) -> None:
    release(CheckpointStorage(master.checkpoints, JOB), ReleaseRecord(""))
    assert master.run("import no_such_module\n") == 0
    assert master.report() is None


def test_storage_that_does_not_respond_is_reported_and_does_not_end_a_master_that_restarts(master: Master) -> None:
    blocked = master.folder / "file"
    blocked.write_text("")
    assert master.run(GOOD, checkpoints=f"file://{blocked}/checkpoints") == 0
    report = master.report()
    assert report is not None
    assert [p["code"] for p in report["problems"]] == ["STORAGE"]


def test_the_check_runs_beside_the_start_of_the_master(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()

    def check() -> bool:
        time.sleep(1)
        print(os.getpid())
        return True

    has_passed = fork_check(check)
    assert time.monotonic() - began < 0.9
    assert has_passed()
    assert int(capfd.readouterr().out) != os.getpid()


def test_a_refused_program_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_process, "REFUSED_EXIT_DELAY_S", 0.0)
    settings = Configuration({"rest.port": "-1"})
    ran: list[object] = []
    code = run_master_process(InProcess(), SubmitOptions(), settings, ran.append, is_admitted=lambda: False)
    assert (code, ran) == (1, [])


def test_the_process_of_the_check_never_returns_to_the_master() -> None:
    def check() -> bool:
        sys.exit(json.dumps({"ok": True}))

    with pytest.raises(InvalidJob, match="ended the process that checks it"):
        fork_check(check)()
