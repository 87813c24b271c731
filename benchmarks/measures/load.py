"""Latency under load: at shares of a job's highest rate, with checkpoints, and the time to recover from a burst."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.execution import Run
from benchmarks.measures.live import Arrivals, live

SECONDS = 15
SHARES = (0.5, 0.8, 0.95)
CHECKPOINT_S, SAMPLE, SETTLE_S = 2, 16, 2.0
MAX_PHASE_S, MEASURED_S = 30, 12
"""Seconds of the run that finds the highest rate: the whole run, and the measured part at its end."""
BURST = 3.0
NORMAL_S, BURST_S, AFTER_S = 8.0, 3.0, 17.0
"""Seconds before, during and after the burst."""
WINDOW_S = 0.25
GOALS = {"back_to_normal_s": 10}


def load(records: int | None, repetitions: int) -> dict[str, Any]:
    """Run `records` seconds (default: 15) at each share of the highest rate, and a burst of three times half of it."""
    seconds = float(records or SECONDS)
    found: list[dict[str, Any]] = []
    for _ in range(repetitions):
        with _loaded([(MAX_PHASE_S, 0)]) as (run, arrivals):
            end = run.result["end"]
            most = len(arrivals.between(end - MEASURED_S, end).at) * SAMPLE / MEASURED_S
        _log(f"the highest rate: {most:,.0f} records/s")
        half = SHARES[0] * most
        phases = [(20.0, half), *((seconds, share * most) for share in SHARES), (5.0, 0.3 * most)]
        phases += [(NORMAL_S, half), (BURST_S, BURST * half), (AFTER_S, half)]
        _log(f"{sum(seconds for seconds, _ in phases):.0f} s at shares of this rate, and with a burst")
        with _loaded(phases) as (run, arrivals):
            found.append({"most": round(most), **_figures(run, arrivals, phases)})
        _log(str(found[-1]))
    shares = {
        share: {key: _median(found, share, key) for key in found[0]["shares"][share]} for share in map(str, SHARES)
    }
    return {
        "seconds": seconds,
        "checkpoint_s": CHECKPOINT_S,
        "most_per_second": round(statistics.median(one["most"] for one in found)),
        "shares": shares,
        "back_to_normal_s": round(statistics.median(one["back_to_normal_s"] for one in found), 2),
        "burst_worst_ms": round(statistics.median(one["burst_worst_ms"] for one in found), 1),
        "load": [one["load"] for one in found],
        "others_cores": [one["others_cores"] for one in found],
        "goal": GOALS,
    }


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _loaded(phases: list[tuple[float, float]]) -> Any:
    plan = ",".join(f"{seconds}x{rate:.0f}" for seconds, rate in phases)
    return live("penstock_load.py", phases=plan, sample=SAMPLE, checkpoint_seconds=CHECKPOINT_S)


def _median(found: list[dict[str, Any]], share: str, key: str) -> float:
    return round(statistics.median(one["shares"][share][key] for one in found), 1)


def _figures(run: Run, arrivals: Arrivals, phases: list[tuple[float, float]]) -> dict[str, Any]:
    begins = np.cumsum([run.result["begin"], *(seconds for seconds, _ in phases)])
    shares = {
        str(share): percentiles(due_between(arrivals, begins[place] + SETTLE_S, begins[place + 1]))
        for place, share in enumerate(SHARES, 1)
    }
    burst = len(phases) - 2
    before = percentiles(due_between(arrivals, begins[burst - 1] + SETTLE_S, begins[burst]))
    return {
        "shares": shares,
        "back_to_normal_s": back_to_normal_s(arrivals, begins[burst + 1], begins[burst + 2], before["p99_ms"]),
        "burst_worst_ms": percentiles(due_between(arrivals, begins[burst], begins[burst + 2]))["worst_ms"],
        "load": round(run.load, 1),
        "others_cores": round(run.others, 2),
    }


def due_between(arrivals: Arrivals, begin: float, end: float) -> Arrivals:
    """Return the arrivals that were due in this period. Selecting by due time includes records that waited."""
    inside = (arrivals.due >= begin) & (arrivals.due < end)
    return Arrivals(arrivals.at[inside], arrivals.due[inside])


def percentiles(arrivals: Arrivals) -> dict[str, float]:
    """Return percentiles of the latency in ms."""
    p50, p99, p999, worst = np.percentile(arrivals.latencies_ms(), [50, 99, 99.9, 100])
    return {"p50_ms": p50, "p99_ms": p99, "p99.9_ms": p999, "worst_ms": worst}


def back_to_normal_s(arrivals: Arrivals, end_of_burst: float, end: float, normal_ms: float) -> float:
    """Return the seconds from the end of a burst until latency is normal again.

    This is the last quarter of a second in which half of the records took longer than the slowest hundredth had taken before the
    burst.
    """
    last = end_of_burst
    for begin in np.arange(end_of_burst, end - WINDOW_S, WINDOW_S):
        window = due_between(arrivals, begin, begin + WINDOW_S)
        if not len(window.at) or np.median(window.latencies_ms()) > normal_ms:
            last = begin + WINDOW_S
    return float(last - end_of_burst)
