"""The memory that a JobManager keeps for ended jobs and failed attempts. It must not grow."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import execute

JOBS = 500
RESTARTS_PER_JOB = 0.4


def heap(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure memory (MB) and live objects after each hundred of `records` jobs, and of restarts of one job, once."""
    jobs = records or JOBS
    restarts = max(2, round(jobs * RESTARTS_PER_JOB))
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as folder:
        command = [sys.executable, str(PROGRAMS / "jobs_in_turn.py"), "--jobs", str(jobs), "--restarts", str(restarts)]
        environment = {"PYTHONPATH": f"{RUNTIME}:{PROGRAMS.parents[1]}"}
        found = execute(command, environment, jobs, Path(folder, "log.txt")).result
    return {name: {"readings": of, **growth(of)} for name, of in found.items()}


def growth(readings: list[dict[str, float]]) -> dict[str, float]:
    """Return the growth between the first reading and the last, per job or restart.

    >>> growth([{"after": 20, "mb": 90.0, "objects": 1000}, {"after": 220, "mb": 92.0, "objects": 1400}])
    {'kb_each': 10.24, 'objects_each': 2.0}
    """
    first, last = readings[0], readings[-1]
    times = max(1, last["after"] - first["after"])
    return {
        "kb_each": round((last["mb"] - first["mb"]) * 1024 / times, 2),
        "objects_each": round((last["objects"] - first["objects"]) / times, 2),
    }
