"""Measures of a running job: latency, the output gap of a rescale and of a lost executor, memory."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import Run, execute

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Arrivals:
    """When records arrived at the sinks and when they were due (s since the epoch), in order of arrival."""

    at: Seconds
    due: Seconds

    def between(self, begin: float, end: float) -> Arrivals:
        inside = (self.at >= begin) & (self.at <= end)
        return Arrivals(self.at[inside], self.due[inside])

    def latencies_ms(self) -> Seconds:
        return (self.at - self.due) * 1e3

    def longest_gap_s(self) -> float:
        """Return the longest time without any output."""
        return float(np.diff(self.at).max()) if len(self.at) > 1 else float("inf")


def read_arrivals(folder: Path) -> Arrivals:
    """Read the files of the sinks of `penstock_live`."""
    parts = [np.frombuffer(path.read_bytes(), np.float64).reshape(-1, 2) for path in folder.glob("latency-*")]
    if not parts:
        return Arrivals(np.empty(0), np.empty(0))
    pairs = np.concatenate(parts)
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    return Arrivals(pairs[:, 0], pairs[:, 1])


@contextmanager
def live(
    program: str = "penstock_live.py",
    *,
    python: str = sys.executable,
    environment: Mapping[str, str] = MappingProxyType({"PYTHONPATH": str(RUNTIME)}),
    **options: Any,
) -> Iterator[tuple[Run, Arrivals]]:
    """Run `penstock_live`, or a similar program, with these options."""
    out = Path(tempfile.mkdtemp(prefix="penstock-benchmark-live-"))
    try:
        arguments = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        command = [python, str(PROGRAMS / program), "--out", str(out), *arguments]
        records = max(1, int(options.get("rate", 1000) * options.get("seconds", 20)))
        run = execute(command, dict(environment), records, out / "log.txt", keep_moments=True)
        yield run, read_arrivals(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def latency(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure 1,000 records per second with keyed state, from the moment a record is due to its arrival at the sink."""
    figures: dict[str, Any] = {}
    seconds = max(10, (records or 20_000) // 1000)
    for _ in range(repetitions):
        for runner in ("batched", "pipelined"):
            with live(runner=runner, rate=1000, warm_up=10, seconds=seconds) as (run, arrivals):
                found = arrivals.between(run.result["acted"], run.result["end"]).latencies_ms()
                p50, p99 = np.percentile(found, [50, 99])
                figures.setdefault(runner, []).append({"p50_ms": p50, "p99_ms": p99, "load": run.load})
    medians = {
        runner: {key: round(statistics.median(one[key] for one in found), 1) for key in found[0]}
        for runner, found in figures.items()
    }
    return {
        "systems": medians,
        "goal": {"batched": {"p50_ms": 150, "p99_ms": 500}, "pipelined": {"p50_ms": 25, "p99_ms": 250}},
    }


def rescale(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure a rescale from 2 to 4 subtasks with a million keys of state: the longest time without output around it."""
    keys = records or 1_000_000
    gaps = []
    for _ in range(repetitions):
        rate = 50_000
        options = {"rate": rate, "keys": keys, "warm_up": keys / rate + 5, "seconds": 10, "worker_slots": 4}
        with live(runner="batched", action="rescale:4", **options) as (run, arrivals):  # type: ignore[arg-type]
            gaps.append(arrivals.between(run.result["acted"] - 1, run.result["end"]).longest_gap_s())
    return {"keys": keys, "gap_s": round(statistics.median(gaps), 2), "gaps_s": gaps, "goal_s": 5}


def recovery(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure the time without output after SIGKILL of an executor, and of the JobManager, which another one replaces immediately."""
    executor, job_manager = [], []
    for _ in range(repetitions):
        with live(runner="batched", rate=1000, warm_up=10, seconds=20, action="kill", worker_slots=2) as (
            run,
            arrivals,
        ):
            executor.append(arrivals.between(run.result["acted"] - 1, run.result["end"]).longest_gap_s())
        with live("penstock_takeover.py", runner="batched", rate=1000, warm_up=10, seconds=5) as (run, _):
            job_manager.append(run.result["resumed"] - run.result["acted"])
    return {
        name: {"gap_s": round(statistics.median(gaps), 2), "gaps_s": [round(gap, 2) for gap in gaps], "goal_s": goal}
        for name, gaps, goal in (("executor", executor, 10), ("jobmanager", job_manager, 20))
    }


def memory(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure the memory of a running job over `records` seconds (default: 60): per slot at the start, and growth.

    A slot's share is the memory of all processes except the JobManager's: Spark workers, executors, Python workers.
    """
    seconds, slots = records or 60, 2
    with live(runner="batched", rate=10_000, keys=1000, warm_up=10, seconds=seconds, slots=slots) as (run, _):
        quarter = max(1, len(run.workers_mb) // 4)
        return {
            "seconds": seconds,
            "slots": slots,
            "per_slot_at_start_mb": round(run.workers_mb[0] / slots),
            "per_slot_at_end_mb": round(run.workers_mb[-1] / slots),
            "goal_mb": 600,
            "peak_mb_all_processes": round(run.peak_mb),
            "growth_mb": round(run.memory_mb[-1] - run.memory_mb[0]),
            "growth_in_last_quarter_mb": round(run.memory_mb[-1] - run.memory_mb[-quarter]),
            "series_mb": run.memory_mb[:: max(1, len(run.memory_mb) // 60)],
        }
