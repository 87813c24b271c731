"""Folders that other users cannot write to, create in advance, or replace."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.common.errors import ClusterError
from penstock.common.folders.private_folder import filled, private_folder, temporary_folder

NOBODY = 65534


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_only_this_user_can_access_the_folder(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "above" / "cache")
    assert mode(folder) == 0o700
    assert private_folder(folder) == folder


def test_a_folder_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    assert mode(private_folder(folder)) == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_is_refused(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    folder = tmp_path / "cache"
    if kind == "link":
        folder.symlink_to(other)
    else:
        folder.touch()
    with pytest.raises(ClusterError, match="is not a folder") as refused:
        private_folder(folder)
    assert str(folder) in refused.value.message
    assert "remove it" in refused.value.remedy


def test_a_folder_of_another_user_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder(tmp_path / "cache")
    owner = os.getuid()
    folder.chmod(0o777)  # otherwise a folder of root would be accepted
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ClusterError, match=f"belongs to the user with id {owner}"):
        private_folder(folder)


def test_a_folder_of_an_image_that_only_root_can_write_is_accepted() -> None:
    found = Path("/usr")
    assert found.stat().st_uid == 0
    if os.getuid():
        assert private_folder(found) == found
        return
    assert run_as_nobody("print(private_folder('/usr'))").stdout.strip() == "/usr"


def test_two_users_of_a_machine_have_separate_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root and `nobody` look below the same folder, which every user may write to."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for folder in (shared, *shared.parents):
        if folder.stat().st_uid == os.getuid() and tempfile.gettempdir() in map(str, folder.parents):
            folder.chmod(0o1777 if folder == shared else 0o755)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    mine = temporary_folder()
    script = (
        f"import tempfile; tempfile.tempdir = {str(shared)!r}\n"
        "print(temporary_folder())\n"
        f"try:\n    private_folder({str(mine)!r})\nexcept Exception as error:\n    print(error.message)\n"
    )
    if os.getuid():
        assert mode(mine) == 0o700
        return
    theirs, refused = run_as_nobody(script).stdout.splitlines()
    assert theirs == str(shared / f"penstock-{NOBODY}")
    assert Path(theirs).stat().st_uid == NOBODY
    assert mode(Path(theirs)) == 0o700
    assert f"{mine} belongs to the user with id {os.getuid()}" in refused


def run_as_nobody(script: str) -> subprocess.CompletedProcess[str]:
    """Run a program as the user `nobody`; for root only."""
    import penstock

    # Only root may have access to the interpreter's folder, so the modules are imported first.
    loaded = (
        f"import os, sys, tempfile; sys.path.insert(0, {str(Path(penstock.__file__).parents[1])!r})\n"
        "from penstock.common.folders.private_folder import filled, private_folder, temporary_folder\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    )
    return subprocess.run([sys.executable, "-c", loaded + script], capture_output=True, text=True, check=True)


def test_a_folder_appears_only_with_its_complete_content(tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    with filled(folder) as building:
        (building / "a").write_text("content")
        assert not folder.exists()
    assert (folder / "a").read_text() == "content"
    assert list(tmp_path.iterdir()) == [folder]


def test_an_error_while_a_folder_is_filled_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), filled(tmp_path / "packages") as building:
        raise RuntimeError(shutil.copy(__file__, building))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_faster_process_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    with filled(folder) as building:
        (building / "a").write_text("mine")
        folder.mkdir()
        (folder / "a").write_text("of the other process")
    assert (folder / "a").read_text() == "of the other process"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_cannot_be_moved_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "packages").write_text("a file")
    with pytest.raises(OSError, match="Not a directory"), filled(tmp_path / "packages"):
        pass
