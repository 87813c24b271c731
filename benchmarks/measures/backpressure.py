"""Memory of every process of jobs whose sinks are much slower than their sources, for records of several sizes.

The memory of a job must not grow with the time that its sources are ahead of its sinks. Waiting data is bounded in bytes, and
at the bound the sources wait. Each size and runner has one job. The jobs of a runner run at the same time, because they use
almost no CPU.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import Run, execute

SIZES = (10, 8_000, 1_000_000)
"""Bytes of a record."""
RATE = 100
"""Records per second that a job's sinks take."""


def slow_sink(runner: str, size: int, seconds: float, rate: float = RATE, slow_sender: float = 0) -> Run:
    """Run `penstock_slow_sink`."""
    out = Path(tempfile.mkdtemp(prefix="penstock-benchmark-backpressure-"))
    try:
        options = {
            "out": out,
            "runner": runner,
            "bytes": size,
            "seconds": seconds,
            "rate": rate,
            "slow-sender": slow_sender,
        }
        arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        command = [sys.executable, str(PROGRAMS / "penstock_slow_sink.py"), *arguments]
        return execute(command, {"PYTHONPATH": str(RUNTIME)}, 1, out / "log.txt", keep_moments=True)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def growth(series: list[int]) -> int:
    """Return the growth in MB: the maximum of the last quarter minus that of the second, when the job has reached its size."""
    quarter = len(series) // 4
    return max(series[-quarter:]) - max(series[quarter : 2 * quarter]) if quarter else 0


def backpressure(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure both runners with a sink of 100 records per second, for `records` seconds (default: 60)."""
    seconds = records or 60
    figures: dict[str, Any] = {}
    for runner in ("pipelined", "batched"):
        with ThreadPoolExecutor(len(SIZES)) as pool:
            runs = pool.map(lambda size, runner=runner: slow_sink(runner, size, seconds), SIZES)
            for size, run in zip(SIZES, runs, strict=True):
                figures[f"{runner}, {size} bytes"] = figures_of(run)
    return {"seconds": seconds, "jobs": figures}


def figures_of(run: Run) -> dict[str, Any]:
    step = max(1, len(run.memory_mb) // 20)
    return {
        **{key: value for key, value in run.result.items() if key not in ("begin", "end")},
        "growth_mb": growth(run.memory_mb),
        "all_mb": run.memory_mb[::step],
        "processes_mb": {name: series[::step] for name, series in run.processes_mb.items() if any(series)},
    }
