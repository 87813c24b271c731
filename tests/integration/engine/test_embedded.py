"""`python job.py` without settings for TaskManagers: all tasks run in the driver's JVM."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_jobs_in_one_jvm_survive_their_python_workers_and_rescales_and_leave_nothing(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "tests.integration.engine.embedded_jobs", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-10000:]
