"""The folder of a killed process is removed by the next process. Other folders are not removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.common.folders.owned_folder import OwnedFolder, sweep

OWNER = """
import sys, time
from penstock.common.folders.owned_folder import OwnedFolder
folder = OwnedFolder(sys.argv[1], "state-", "slot-")
open(f"{folder.path}/data", "w").write("x" * 1000)
print(folder.path, flush=True)
time.sleep(600)
"""


def owner_of(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_the_folder_of_the_killed_process_is_removed(tmp_path: Path) -> None:
    (killed, lost), (living, used) = owner_of(tmp_path), owner_of(tmp_path)
    try:
        killed.kill()
        killed.wait()
        assert lost.is_dir()
        own = OwnedFolder(str(tmp_path), "state-")
        assert not lost.exists()
        assert (used / "data").exists()
        assert sweep(str(tmp_path), "state-") == []
        own.remove()
        own.remove()
        assert not Path(own.path).exists()
        assert (used / "data").exists()
    finally:
        living.kill()
        living.wait()


def test_other_folders_are_not_removed(tmp_path: Path) -> None:
    strange = tmp_path / "state-without-owner"
    strange.mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/owner").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner").touch()
    (tmp_path / "state-link").symlink_to(elsewhere)
    assert sweep(str(tmp_path), "state-") == []
    assert sweep(str(tmp_path / "missing"), "state-") == []
    assert strange.exists()
    assert elsewhere.exists()


def test_only_this_user_can_access_a_folder(tmp_path: Path) -> None:
    assert os.stat(OwnedFolder(str(tmp_path), "state-").path).st_mode & 0o077 == 0
