"""`set_python_requirements`: missing packages are installed once, and packages of the engine are not replaced."""

from __future__ import annotations

import importlib
import re
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.program import requirements
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess


def test_installed_packages_are_used(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"# a comment\nmsgspec\nnumpy>=1 ; python_version > '3'\nmsgspec=={version('msgspec')}\n")
    env.set_python_requirements(str(path))


def test_versions_and_markers_are_parsed_as_by_pip(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "version", lambda name: {"numpy": "2.4.1", "msgspec": "0.22.0rc1"}[name])
    path = tmp_path / "requirements.txt"
    path.write_text(
        "numpy==2.*\nnumpy==2.4.1.0 --hash=sha256:00\nnumpy>=2,\\\n <3\nmsgspec>=0.21\n-r more.txt\n"
        "absent==1.0 ; sys_platform == 'win32'\n"
    )
    (tmp_path / "more.txt").write_text("numpy~=2.4\n-r requirements.txt\n")
    env.set_python_requirements(str(path))
    for line in ("numpy>=99", "numpy[extra]!=2.4.1", "numpy==2.5.* ; python_version > '3'"):
        (tmp_path / "more.txt").write_text(line)
        with pytest.raises(InvalidJob, match=re.escape(f"{line} (installed: 2.4.1)")):
            env.set_python_requirements(str(path))


@pytest.mark.parametrize("option", ["-r ", "--constraint="])
def test_an_included_file_is_part_of_the_cached_requirements(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    path, packages, found = tmp_path / "requirements.txt", tmp_path / "packages", list(sys.path)
    wheel(packages, "")
    for line in ("penstock-test-package", "penstock-test-package==1.0"):
        monkeypatch.setattr(sys, "path", list(found))
        (tmp_path / "more.txt").write_text(line)
        path.write_text(f"{option}more.txt\npenstock-test-package\n")
        env.set_python_requirements(str(path), str(packages))
    assert len(list((tmp_path / "cache" / "requirements").iterdir())) == 2


def test_missing_packages_are_installed_from_a_folder(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    path, packages = tmp_path / "requirements.txt", tmp_path / "packages"
    path.write_text("penstock-test-package==1.0")
    wheel(packages, "def plus(a, b):\n    return a + b\n")

    def add_one(value: int) -> Any:
        return importlib.import_module("penstock_test_package").plus(value, 1)

    for _ in range(2):
        env.set_python_requirements(str(path), str(packages))
    with executing_on(Session(InProcess())):
        assert list(env.from_collection([1, 2]).map(add_one).execute_and_collect()) == [2, 3]
    assert sys.path[-1].startswith(str(tmp_path / "cache" / "requirements"))


def test_a_package_that_cannot_be_installed_is_named(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    path, nothing = tmp_path / "requirements.txt", tmp_path / "packages"
    path.write_text("no-such-package")
    nothing.mkdir()
    with pytest.raises(InvalidJob, match="no-such-package"):
        env.set_python_requirements(str(path), str(nothing))
    path.write_text("-r no-such-file.txt")
    with pytest.raises(InvalidJob, match="no-such-file"):
        env.set_python_requirements(str(path), str(nothing))
    assert not list((tmp_path / "cache" / "requirements").iterdir())


def test_packages_of_the_engine_are_not_replaced(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("msgspec==0.0.1")
    with pytest.raises(InvalidJob, match=r"msgspec==0.0.1 \(installed:"):
        env.set_python_requirements(str(path))


def wheel(folder: Path, module: str) -> None:
    """Write a wheel of one module, `penstock_test_package`, into the folder."""
    folder.mkdir()
    name = "penstock_test_package"
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": module,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
