"""JVMs with the smallest heap of the memory model: Spark accepts it, and a keyed job runs with it and with bounded RocksDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_a_job_runs_in_minimal_containers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.engine.cluster.small_containers", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-8_000:]
