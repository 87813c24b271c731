"""Failed tests run once more, up to a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.retry import run

if TYPE_CHECKING:
    from pathlib import Path

# Each test counts its runs in a file beside the module.
COUNTING = """
from pathlib import Path
def count(name):
    file = Path(__file__).with_name(name)
    file.write_text(str(int(file.read_text()) + 1 if file.exists() else 1))
    return int(file.read_text())
def test_passes():
    count("passes")
def test_passes_at_the_second_run():
    assert count("unstable") == 2
"""
BROKEN = """
def test_fails():
    assert not count("fails")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def runs(folder: Path, name: str) -> int:
    file = folder / name
    return int(file.read_text()) if file.exists() else 0


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_test_that_passes_in_the_second_run_is_reported_as_unstable(
    folder: Path, workers: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_it.py").write_text(COUNTING)
    unstable = folder / "names"
    assert run([*workers, "-c", str(folder / "pytest.ini"), str(folder)], 3, unstable) == 0
    assert (runs(folder, "passes"), runs(folder, "unstable")) == (1, 2)
    assert unstable.read_text() == "unstable: test_it.py::test_passes_at_the_second_run\n"
    assert (
        "== passed in the second run\nunstable: test_it.py::test_passes_at_the_second_run\n" in capfd.readouterr().out
    )


@pytest.mark.parametrize(("limit", "seen"), [(0, 1), (1, 1), (2, 2)])
def test_a_test_that_always_fails_fails_the_run(folder: Path, limit: int, seen: int) -> None:
    (folder / "test_it.py").write_text(COUNTING + BROKEN)
    assert run(["-c", str(folder / "pytest.ini"), str(folder)], limit, folder / "names") == 1
    assert runs(folder, "fails") == seen
    assert not (folder / "names").exists()


def test_an_error_of_the_collection_does_not_run_again(folder: Path) -> None:
    (folder / "test_it.py").write_text("import a_module_that_does_not_exist")
    assert run(["-c", str(folder / "pytest.ini"), str(folder)], 3, None) == 2
