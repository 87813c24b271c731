"""What clusters leave behind on the disk: nothing after their end, also of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("named", [False, True], ids=["the cluster's folder", "a folder that settings name"])
def test_state_of_killed_processes_is_swept_and_none_is_left_at_the_end(tmp_path: Path, *, named: bool) -> None:
    command = [sys.executable, "-m", "tests.integration.engine.killed_workers", tmp_path]
    ended = subprocess.run(
        [*command, tmp_path / "disk"] if named else command, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
