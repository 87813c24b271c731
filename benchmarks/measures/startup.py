"""A job of ten records: the time from the start of the process to its end, and the parts of this time."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import execute
from penstock.jobmanager.cluster.jvm.class_archive import find_archive
from penstock.jobmanager.cluster.jvm.java import find_java


def startup(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure a cluster of processes, and one in a single JVM."""
    return {
        "class_archive": find_archive(find_java()) is not None,
        **{kind: _measured(kind, repetitions) for kind in ("processes", "one-jvm")},
    }


def _measured(kind: str, repetitions: int) -> dict[str, Any]:
    """Return seconds until the job is done and until the process has ended, CPU seconds, and the seconds of each part."""
    done, ended, cpu = [], [], []
    parts: dict[str, list[float]] = {}
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as folder:
            program = [str(PROGRAMS / "penstock_startup.py"), "--local-cluster", kind]
            command = [sys.executable, *program, "--started", str(time.time())]
            run = execute(command, {"PYTHONPATH": str(RUNTIME)}, 10, Path(folder, "log.txt"))
        moments = run.result["moments"]
        done.append(moments["job"] - moments["started"])
        ended.append(run.wall_s)
        cpu.append(run.cpu_s)
        for (_, before), (step, after) in pairwise(moments.items()):
            parts.setdefault(step, []).append(after - before)
    return {
        "job_done_s": round(statistics.median(done), 2),
        "ended_s": round(statistics.median(ended), 2),
        "cpu_s": round(statistics.median(cpu), 2),
        "parts_s": {step: round(statistics.median(times), 2) for step, times in parts.items()},
    }
