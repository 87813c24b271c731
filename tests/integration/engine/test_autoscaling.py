"""An active autoscaler rescales a job on real Spark processes up and down, and its output is exactly once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2500)]


def test_a_job_follows_its_load_and_loses_and_repeats_nothing(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "tests.integration.engine.autoscaled_job", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2400, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-10000:]
