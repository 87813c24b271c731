"""`penstock init`: the commands of a new project's README and workflow succeed, and no file is ever overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.requirements import Requirement

from penstock import __version__
from penstock.cli.commands.projects.init import FILES, PLACEHOLDER
from penstock_operator.api.schema.crds import MAX_NAME

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Outcome, Terminal

RUN, TEST, VALIDATE = "python job.py --count 300", "python -m pytest", "penstock validate flinkjob.yaml"


@pytest.fixture
def project(offline: Terminal, tmp_path: Path) -> Path:
    outcome = offline("init", str(tmp_path / "room-weather"))
    assert outcome.code == 0, outcome.err
    return tmp_path / "room-weather"


def test_the_project_contains_every_file_under_its_own_name(project: Path) -> None:
    made = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert made == set(FILES.values())
    stored = resources.files("penstock.cli").joinpath("project")
    assert {path.name for path in stored.iterdir() if path.is_file()} == set(FILES)
    texts = {path: (project / path).read_text() for path in made}
    assert not [path for path, text in texts.items() if PLACEHOLDER in text]
    assert yaml.safe_load(texts["flinkjob.yaml"])["metadata"]["name"] == "room-weather"
    assert f"ARG BASE_IMAGE=penstock/base:{__version__}\n" in texts["Dockerfile"]
    settings = tomllib.loads(texts["pyproject.toml"])["project"]
    assert settings["name"] == "room-weather"
    [need] = map(Requirement, settings["dependencies"])
    assert need.name == "penstock-streaming"
    assert need.specifier.contains(__version__)


def test_the_commands_of_the_readme_and_of_the_workflow_succeed(project: Path) -> None:
    assert readmes_commands(project) == [RUN, TEST, VALIDATE]
    check_output(run(f"{RUN} --in-process", project))
    assert "4 passed" in run(TEST, project)
    assert run(VALIDATE, project).startswith("1 manifest in 1 file: no problem\n")
    install, *steps = workflows_commands(project)
    assert install == "python -m pip install '.[test]'"
    assert steps == [TEST, VALIDATE, "penstock check --entry job.py"]
    assert "The program can be started." in run(steps[-1], project)


@pytest.mark.slow
@pytest.mark.spark
def test_the_first_command_of_the_readme_runs_the_job_in_real_processes(project: Path) -> None:
    check_output(run(readmes_commands(project)[0], project))


@pytest.mark.slow
def test_pyright_finds_no_error_in_the_project(project: Path) -> None:
    assert "0 errors, 0 warnings" in run(f"python -m pyright --pythonpath {sys.executable} job.py test_job.py", project)


def test_the_command_prints_what_to_do_next(offline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert offline("init", "jobs/my weather/sums").lines == [
        f"Created jobs/my weather/sums with {len(FILES)} files. Next:",
        "  cd 'jobs/my weather/sums'",
        f"  {RUN}",
        f"  {TEST}",
        f"  {VALIDATE}",
    ]


def test_the_current_folder_can_become_the_project_if_it_is_empty(
    offline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sums").mkdir()
    monkeypatch.chdir(tmp_path / "sums")
    assert offline("init", ".").lines[1] == f"  {RUN}"
    assert "# sums" in (tmp_path / "sums" / "README.md").read_text()


def test_a_folder_with_a_file_is_refused_and_left_unchanged(offline: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / ".env").write_text("KEY=1")
    check_refusal(
        offline("init", str(folder)),
        f"the folder {folder} is not empty: it contains .env",
        "choose another name, or an empty folder",
    )
    assert [path.name for path in folder.iterdir()] == [".env"]


def test_a_file_with_the_name_is_refused(offline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("mine")
    check_refusal(
        offline("init", str(tmp_path / "sums")),
        f"{tmp_path / 'sums'} is a file",
        "choose another name, or remove the file",
    )


def test_a_folder_that_cannot_be_created_is_named(offline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = offline("init", str(tmp_path / "file" / "sums"))
    assert outcome.code == 1
    assert f"the project cannot be written to {tmp_path / 'file' / 'sums'}: Not a directory" in outcome.err
    assert "remedy: choose a folder that you can write to" in outcome.err


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("My_Job", "my-job"),
        ("7-days", "job-7-days"),
        ("sums-", "sums"),
        ("Zählung", "z-hlung"),
        ("___", "job"),
        ("a" * (MAX_NAME + 1), "a" * MAX_NAME),
    ],
)
def test_an_invalid_name_is_refused_with_a_valid_one(offline: Terminal, tmp_path: Path, name: str, valid: str) -> None:
    outcome = offline("init", str(tmp_path / name))
    check_refusal(outcome, f"{name!r} is not a valid name", f"penstock init {tmp_path / valid}")
    assert list(tmp_path.iterdir()) == []
    assert offline("init", str(tmp_path / valid)).code == 0


def check_output(shown: str) -> None:
    """Check the output of 300 readings: five minutes of four sensors, and one reading in 50 is invalid."""
    assert len(re.findall(r"^mean>.* \('sensor-\d', \d+, \d+\.\d\)$", shown, re.MULTILINE)) == 20, shown
    assert len(re.findall(r"^invalid>.* Reading\(.*celsius=999\.0", shown, re.MULTILINE)) == 6, shown
    assert re.search(r"^maximum>.* Reading\(sensor='sensor-0', celsius=15\.0, time=0\)$", shown, re.MULTILINE), shown


def check_refusal(outcome: Outcome, message: str, remedy: str) -> None:
    first, second = outcome.err.splitlines()
    assert outcome.code == 2
    assert first.startswith(f"error [USAGE]: {message}")
    assert second == f"  remedy: {remedy}"


def readmes_commands(project: Path) -> list[str]:
    [block] = re.findall(r"```sh\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def workflows_commands(project: Path) -> list[str]:
    workflow = yaml.safe_load((project / ".github" / "workflows" / "tests.yaml").read_text())
    return [step["run"] for step in workflow["jobs"]["tests"]["steps"] if "run" in step]


def run(command: str, folder: Path) -> str:
    """Run a command in the project, as a user does. Return its output."""
    program, *words = command.split()
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "penstock.cli"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*start, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
