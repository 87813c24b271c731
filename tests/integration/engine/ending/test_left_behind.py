"""Clusters leave nothing on the disk after their end, also of killed processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "named",
    [
        pytest.param(False, id="the cluster's folder"),
        pytest.param(True, id="a folder that settings name", marks=pytest.mark.slow),
    ],
)
def test_state_of_killed_processes_is_removed_and_none_is_left_at_the_end(tmp_path: Path, *, named: bool) -> None:
    command: list[str | Path] = [sys.executable, "-m", "tests.integration.engine.ending.killed_workers", tmp_path]
    ended = subprocess.run(
        [*command, tmp_path / "disk"] if named else command, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
