"""Changes to the files of a program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.process.dev.watched_files import WatchedFiles, program_files

if TYPE_CHECKING:
    from pathlib import Path


def changes(files: WatchedFiles) -> list[str]:
    return files.changed() + files.changed()


def test_a_saved_file_is_reported_once_and_after_it_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("1")
    files = WatchedFiles(str(path))
    assert changes(files) == []
    path.write_text("1\n2")
    assert files.changed() == [], "the editor may still write"
    assert files.changed() == [str(path)]
    assert changes(files) == []


def test_a_file_that_an_editor_replaces_is_missing_for_a_moment_without_a_change(tmp_path: Path) -> None:
    path, draft = tmp_path / "job.py", tmp_path / "draft"
    path.write_text("1")
    files = WatchedFiles(str(path))
    path.unlink()
    assert changes(files) == []
    draft.write_text("2")
    draft.replace(path)
    assert changes(files) == [str(path)]


def test_a_file_that_changed_before_it_was_watched_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_a_test.py").write_text("a = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("rules_of_a_test")
    try:
        read = program_files(str(tmp_path))
    finally:
        del sys.modules["rules_of_a_test"]
    assert list(read) == [str(tmp_path / "rules_of_a_test.py")]
    (tmp_path / "rules_of_a_test.py").write_text("a = 12")
    files = WatchedFiles(str(tmp_path / "job.py"))
    files.add(read)
    assert changes(files) == [str(tmp_path / "rules_of_a_test.py")]
