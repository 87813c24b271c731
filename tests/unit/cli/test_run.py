from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.unit.cli.fake_launch import JOB_ID, FakeLaunch
from tests.unit.cli.terminal import Terminal

ROOT = Path(__file__).parents[3]


@pytest.fixture
def offline() -> Terminal:
    """Return a terminal that runs programs on this machine."""
    return Terminal({})


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    fake = FakeLaunch()
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.process.launch", fake)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    return fake


def program(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_arguments_after_the_script_belong_to_the_program(
    offline: Terminal, launch: FakeLaunch, tmp_path: Path
) -> None:
    script = program(tmp_path, "")
    outcome = offline(
        "run",
        "-p",
        "4",
        "-s",
        "s3://b/sp",
        "-n",
        "gone",
        "-n",
        "old",
        "-D",
        "a.b=c=d",
        script,
        "-p",
        "9",
        "--input",
        "x",
    )
    assert outcome.out == f"Job has been submitted with JobID {JOB_ID}\n"
    assert launch.calls == [
        (
            "run_script",
            {
                "script": script,
                "args": ["-p", "9", "--input", "x"],
                "parallelism": 4,
                "savepoint_path": "s3://b/sp",
                "allow_non_restored_state": ["gone", "old"],
                "configuration": {"a.b": "c=d"},
                "is_detached": False,
            },
        )
    ]


def test_an_error_of_the_program_starts_with_its_own_frame(
    offline: Terminal, launch: FakeLaunch, tmp_path: Path
) -> None:
    script = program(tmp_path, "def parse(x):\n    return int(x)\n\nparse('7x')\n")
    outcome = offline("run", script)
    assert outcome.code == 1
    head, first, *_ = outcome.err.splitlines()
    assert head == "Traceback (most recent call last):"
    assert first == f'  File "{script}", line 4, in <module>'
    assert outcome.err.splitlines()[-1].startswith("ValueError: invalid literal")
    assert "runpy" not in outcome.err


def test_a_program_that_exits_keeps_its_exit_code(offline: Terminal, launch: FakeLaunch, tmp_path: Path) -> None:
    assert offline("run", program(tmp_path, "import sys\nsys.exit(7)\n")).code == 7


def test_an_error_of_penstock_is_a_line_with_place_and_remedy(
    offline: Terminal, launch: FakeLaunch, tmp_path: Path
) -> None:
    script = program(
        tmp_path,
        """
        from penstock.common.errors import InvalidJob
        raise InvalidJob("two operators have the uid 'a'", remedy="rename one", operator="Map", location="job.py:3")
        """,
    )
    outcome = offline("run", script)
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "error [INVALID_JOB]: two operators have the uid 'a'",
        "  operator: Map",
        "  at: job.py:3",
        "  remedy: rename one",
    ]


def test_an_error_of_penstock_without_a_place_has_the_innermost_line_of_the_program(
    offline: Terminal, launch: FakeLaunch, tmp_path: Path
) -> None:
    script = program(
        tmp_path,
        """
        import runpy
        from penstock.common.errors import InvalidJob

        def build():
            raise InvalidJob("the job has no sink")

        build()
        """,
    )
    line = Path(script).read_text().splitlines().index('    raise InvalidJob("the job has no sink")') + 1
    outcome = offline("run", script)
    assert outcome.err.splitlines() == ["error [INVALID_JOB]: the job has no sink", f"  at: {script}:{line}"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "none.py"), "the program none.py does not exist"),
        (("run", "-n", "job.py", "x"), "is a file, not the uid of an operator"),
        (("run", "-D", "a", __file__), "-D a is not KEY=VALUE"),
        (("run", "-D", "parallelism.defalt=2", __file__), "the option 'parallelism.defalt' does not exist"),
        (("run", "-D", "parallelism.default=x", __file__), "which is not an integer"),
        (("dev", "-D", "parallelism.defalt=2", __file__), "the option 'parallelism.defalt' does not exist"),
        (("master", "--entry", "job.py", "--fresh", "-D", "rest.prot=1"), "the option 'rest.prot' does not exist"),
    ],
)
def test_mistakes_are_explained(offline: Terminal, launch: FakeLaunch, words: tuple[str, ...], text: str) -> None:
    outcome = offline(*words)
    assert outcome.code == 2
    assert text in outcome.err
    assert "remedy:" in outcome.err
    assert "  at:" not in outcome.err, "the command line has no line"
    assert not launch.calls


def test_a_missing_engine_is_reported(offline: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        exec("import pyspark", {"__name__": name})

    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr("penstock.cli.engine.import_module", missing)
    outcome = offline("run", program(tmp_path, ""))
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "error [CLUSTER]: Penstock needs the package pyspark, which is not installed",
        "  remedy: pip install penstock-streaming",
    ]


def detached(folder: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Execute `penstock run -d` in a process whose children have the fake engine."""
    (folder / "sitecustomize.py").write_text("from tests.unit.cli.fake_launch import install\ninstall()\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT / "runtime"), str(ROOT)))}
    command = [sys.executable, "-m", "penstock.cli", "run", "-d", *words, script]
    environment["TMPDIR"] = str(folder)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_detached_prints_the_id_and_returns_while_the_program_runs(tmp_path: Path) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    wait = f"while not pathlib.Path({str(go)!r}).exists():\n        time.sleep(0.02)"
    script = program(
        tmp_path, f"import pathlib, time\ndef after():\n    {wait}\n    pathlib.Path({str(done)!r}).touch()\n"
    )
    result = detached(tmp_path, script, "-D", "a=b")
    assert result.returncode == 0, result.stderr
    go.touch()
    lines = result.stdout.splitlines()
    assert lines[0] == f"Job has been submitted with JobID {JOB_ID}"
    assert lines[2] == "Its JobManager is at http://localhost:9999. Pass this address to other commands with -m"
    deadline = time.monotonic() + 20
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert done.exists()


def test_detached_shows_the_end_of_the_log_when_the_program_fails_early(tmp_path: Path) -> None:
    result = detached(tmp_path, program(tmp_path, "print('so far')\nraise ValueError('no input')\n"))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "failed with exit code 1. End of its output:" in result.stderr
    assert "  so far" in result.stderr
    assert "  ValueError: no input" in result.stderr
    assert f"remedy: the complete log is {tmp_path}" in result.stderr


def test_in_process_has_precedence_over_the_cluster_in_the_environment(launch: FakeLaunch, tmp_path: Path) -> None:
    terminal = Terminal({"PENSTOCK_MASTER": "http://localhost:1"})
    assert terminal("run", program(tmp_path, "")).code != 0  # the cluster does not respond
    assert terminal("run", "--in-process", program(tmp_path, "")).code == 0
