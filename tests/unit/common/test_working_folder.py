"""A process works in a separate folder with the job's archives. The engine uses the folder in which the process
started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.folders.private_folder import cache_folder
from penstock.common.folders.start_folder import absolute
from penstock.common.folders.working_folder import work_in
from penstock.taskmanager.local_state.folders import local_folders

Own = Callable[[], OwnedFolder]


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return partial(OwnedFolder, str(tmp_path / "own"), "work-")


@pytest.fixture(autouse=True)
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "start").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    yield tmp_path / "start"
    work_in("")


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "x").write_text("1")
    (tmp_path / "job" / "deep").mkdir(parents=True)
    (tmp_path / "job" / "deep" / "m").symlink_to(tmp_path / "content")
    return str(tmp_path / "job")


def test_a_process_works_in_a_separate_folder_until_it_leaves_it(
    job: str, own: Own, start: Path, tmp_path: Path
) -> None:
    work_in(job, own)
    first = os.getcwd()
    assert Path("deep/m/x").read_text() == "1"
    Path("deep/mine").write_text("")
    assert os.listdir(Path(job, "deep")) == ["m"]
    assert absolute("out") == str(start / "out")
    work_in(job, own)
    assert os.listdir("deep") == ["m"]
    assert os.getcwd() != first
    assert not os.path.exists(first)
    work_in("")
    assert (os.getcwd(), absolute("out")) == (str(start), str(start / "out"))
    assert os.listdir(tmp_path / "own") == []
    assert (tmp_path / "content" / "x").exists()


def test_a_missing_folder_is_reported_and_leaves_no_files(own: Own, start: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"which this worker cannot read \(No such file or directory\)"):
        work_in("elsewhere", own)
    assert (os.getcwd(), absolute("out")) == (str(start), str(start / "out"))
    assert not (tmp_path / "own").exists() or os.listdir(tmp_path / "own") == []


@pytest.mark.parametrize("fails", [False, True])
def test_other_threads_get_the_right_folder_while_the_process_changes_it(
    job: str, own: Own, start: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    paths = []
    chdir = os.chdir

    def watched(folder: Any) -> None:
        paths.append(absolute("x"))
        if fails and folder != str(start):
            raise PermissionError(13, "Permission denied")
        chdir(folder)
        paths.append(absolute("x"))

    monkeypatch.setattr("os.chdir", watched)
    if fails:
        with pytest.raises(InvalidJob, match="Permission denied"):
            work_in(job, own)
    else:
        work_in(job, own)
        work_in("")
    monkeypatch.setattr("os.chdir", chdir)
    assert set(paths) == {str(start / "x")}
    assert os.getcwd() == str(start)
    work_in("")
    assert os.getcwd() == str(start)


def test_relative_folders_of_settings_are_not_in_the_folder_of_the_job(
    job: str, own: Own, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", "cache")
    work_in(job, own)
    assert local_folders({"localdir": "a, b"}, "") == [str(start / "a"), str(start / "b")]
    assert local_folders({}, "tmp") == [str(start / "tmp")]
    assert cache_folder("any") == start / "cache" / "any"
