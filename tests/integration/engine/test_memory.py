"""JVMs with the least heap that the memory model gives: Spark takes it, and a keyed job runs with it and with bounded RocksDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_a_job_runs_in_containers_that_are_just_large_enough(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.engine.small_containers", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-8_000:]
