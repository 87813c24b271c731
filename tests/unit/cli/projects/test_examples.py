"""`penstock examples`: it lists and copies every example, and the copies run as their READMEs say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples import EXAMPLES
from tests.unit.cli.projects.test_init import check_refusal, run
from tests.unit.cli.projects.warm_pytest import WarmPytest
from tools.images import wheels
from tools.images.wheels import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.terminal import Terminal

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/job.py"))
PRINTED = {
    "async_enrichment",
    "average_readings",
    "fraud_detection",
    "late_data",
    "session_clicks",
    "socket_word_count",
    "temperature_alerts",
}
"""Examples whose README shows all that they print. `tests/integration` runs the others, which need a server or a table."""
LINES = dict.fromkeys(NAMES, 120) | {"airport_weather": 190}
"""The longest program permitted. The weather is also the job of the demo."""


def block(readme: Path, language: str) -> str:
    """Return the first block of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", readme.read_text(), re.DOTALL)[0]


def test_the_list_has_each_example_with_the_first_sentence_of_its_program(offline: Terminal) -> None:
    lines = [line for line in offline("examples").lines if line.startswith("  ")]
    assert sorted(line.split()[0] for line in lines) == NAMES
    for line in lines:
        name = line.split()[0]
        summary = (ast.get_docstring(ast.parse((EXAMPLES / name / "job.py").read_text())) or "").partition("\n")[0]
        assert line.split(maxsplit=1)[1] == summary
        assert summary.endswith(".")
        assert len(summary) <= 100, name


def test_the_list_separates_the_examples_that_need_a_server(offline: Terminal) -> None:
    page = (REPOSITORY / "docs" / "examples.md").read_text()
    without, _, needing = page.partition("## Programs that need a server")
    first, second = offline("examples").out.split("With a server")
    for shown, documented in ((first, without), (second, needing)):
        names = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
        assert sorted(names) == sorted(re.findall(r"\(\.\./examples/(\w+)/", documented))


def test_the_page_and_the_folder_list_the_same_examples() -> None:
    page = (REPOSITORY / "docs" / "examples.md").read_text()
    assert sorted(re.findall(r"\(\.\./examples/(\w+)/", page)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_complete(name: str) -> None:
    files = {path.name for path in (EXAMPLES / name).iterdir()}
    assert files >= {"README.md", "flinkjob.yaml", "job.py", "test_job.py"}
    assert len((EXAMPLES / name / "job.py").read_text().splitlines()) <= LINES[name]


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_the_program_of_a_copy_prints_what_its_readme_shows(offline: Terminal, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "copy"
    assert offline("examples", name, str(folder)).code == 0
    [command] = block(folder / "README.md", "sh").splitlines()
    shown = run(f"{command} --in-process", folder)
    assert sorted(shown.splitlines()) == sorted(block(folder / "README.md", "text").splitlines())


def test_a_copy_of_the_weather_prints_the_alerts_that_its_readme_shows(offline: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    assert offline("examples", "airport_weather", str(folder)).code == 0
    shown = run("python job.py --in-process", folder).splitlines()
    readme = folder / "README.md"
    assert f"prints {len(shown)} alerts" in readme.read_text()
    assert [line for line in shown if "JFK" in line][:2] == block(readme, "text").splitlines()


def test_no_text_of_an_example_names_the_folder_of_the_repository() -> None:
    texts = [path for path in EXAMPLES.rglob("*") if path.suffix in {".md", ".py"}]
    assert [str(path) for path in texts if re.search(r"\bexamples/|tools\.servers", path.read_text())] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(PRINTED))
def test_the_command_of_the_readme_runs_in_real_processes(name: str) -> None:
    readme = EXAMPLES / name / "README.md"
    shown = run(block(readme, "sh").strip(), EXAMPLES / name).splitlines()
    assert sorted(shown) == sorted(block(readme, "text").splitlines())


@pytest.fixture(scope="module")
def warm_pytest() -> Iterator[WarmPytest]:
    with WarmPytest() as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_the_test_and_the_manifest_of_a_copy_pass(
    offline: Terminal, warm_pytest: WarmPytest, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "copy"
    assert offline("examples", name, str(folder)).code == 0
    assert re.search(r"^\d+ passed", warm_pytest.run(folder).splitlines()[-1])
    assert offline("validate", str(folder / "flinkjob.yaml")).out.startswith("1 manifest in 1 file: no problem\n")


def test_the_commands_for_the_test_and_the_manifest_of_a_copy_succeed(offline: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    assert offline("examples", "late_data", str(folder)).code == 0
    assert re.search(r"^\d+ passed", run("python -m pytest -q", folder).splitlines()[-1])
    assert run("penstock validate flinkjob.yaml", folder).startswith("1 manifest in 1 file: no problem\n")


def test_a_copy_has_the_files_of_the_example_and_nothing_else(offline: Terminal, tmp_path: Path) -> None:
    for name in NAMES:
        outcome = offline("examples", name, str(tmp_path / name))
        assert outcome.code == 0, outcome.err
    assert contents(tmp_path) == committed()


def test_the_wheel_contains_every_example_and_copies_one(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels.penstock(tmp_path)) as wheel:
        wheel.extractall(tmp_path / "wheel")
    assert contents(tmp_path / "wheel" / "penstock" / "cli" / "examples") == committed()
    command = "from penstock.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", command, "examples", "late_data"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "wheel")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("Created late_data with 4 files."), done.stderr


def test_the_default_folder_has_the_name_of_the_example(
    offline: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert offline("examples", "late_data").lines == [
        "Created late_data with 4 files. Next:",
        "  cd late_data",
        "  cat README.md",
    ]


def test_a_folder_with_a_file_is_refused_and_left_unchanged(offline: Terminal, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("mine")
    check_refusal(
        offline("examples", "late_data", str(tmp_path)),
        f"the folder {tmp_path} is not empty: it contains job.py",
        "choose another name, or an empty folder",
    )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("job.py", "mine")]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("late-date", "penstock examples late_data"), ("../late_data", "penstock examples late_data"), ("x", "list the")],
)
def test_an_unknown_example_is_refused_with_the_nearest_name(offline: Terminal, name: str, remedy: str) -> None:
    outcome = offline("examples", name)
    assert outcome.code == 2
    assert outcome.err.splitlines()[0] == f"error [USAGE]: {name!r} is not an example"
    assert f"remedy: {remedy}" in outcome.err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def committed() -> dict[str, bytes]:
    """Return the files of the repository's examples that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    return {name: (EXAMPLES / name).read_bytes() for name in listed.stdout.split("\0") if "/" in name}
