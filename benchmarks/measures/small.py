"""The cost of a small job: cores, memory and processes of a keyed job of two slots, idle, at 10 and at 1,000 records/s."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np

from benchmarks.environments import python_of, site_packages
from benchmarks.execution import Run
from benchmarks.measures.live import Arrivals, live

SECONDS = 20
WARM_UP_S = 25
"""Seconds. JVMs compile while they run, mostly in the first half minute."""
RATES = {"idle": 0, "10": 10, "1000": 1000}
GOALS = {
    "cores": {"idle": 0.03, "10": 0.03, "1000": 0.10},
    "latency_ms": {"p50": 15, "p99": 50},
    "memory_mb": 500,
}


def small(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure each rate for `records` seconds (default: 20), Penstock and PyFlink in turn, with a checkpoint every 10 s."""
    seconds = records or SECONDS
    systems = {
        "penstock": ("penstock_live.py", sys.executable, {}),
        "penstock-processes": ("penstock_live.py", sys.executable, {}),
        "pyflink": ("flink/pyflink_live.py", str(python_of("flink")), {"PYTHONPATH": str(site_packages("flink"))}),
    }
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for _ in range(repetitions):
        for name, rate in RATES.items():
            for system, (program, python, environment) in systems.items():
                options: dict[str, Any] = {"rate": rate, "warm_up": WARM_UP_S, "seconds": seconds}
                if system.startswith("penstock"):
                    options |= {"checkpoint_seconds": 10, "settled": 1}
                    options["local_cluster"] = system.partition("-")[2] or "one-jvm"
                elif rate == 0:
                    continue
                with live(program, python=python, environment=environment, **options) as (run, arrivals):
                    figures = _figures(run, arrivals if rate else None)
                print(f"{system} at {name} records/s: {figures}", file=sys.stderr)
                found.setdefault(system, {}).setdefault(name, []).append(figures)
    systems_found = {
        system: {name: _median(figures) for name, figures in rates.items()} for system, rates in found.items()
    }
    ratios = {
        system: {
            name: round(figures["cores"] / systems_found["pyflink"][name]["cores"], 2)
            for name, figures in rates.items()
            if name in systems_found["pyflink"]
        }
        for system, rates in systems_found.items()
        if system != "pyflink"
    }
    return {"seconds": seconds, "systems": systems_found, "cores_to_pyflink": ratios, "goal": GOALS}


def _figures(run: Run, arrivals: Arrivals | None) -> dict[str, Any]:
    by_role: dict[str, float] = {}
    for name, cores in run.processes_cores.items():
        role = name.partition(" ")[0]
        by_role[role] = by_role.get(role, 0.0) + cores
    figures: dict[str, Any] = {
        "cores": round(run.cpu_s / run.wall_s, 3),
        "memory_mb": run.memory_mb[-1],
        "processes": len(run.processes_cores),
        "load": run.load,
        "others_cores": round(run.others, 2),
        "cores_by_role": {role: round(cores, 4) for role, cores in sorted(by_role.items())},
        "memory_by_process_mb": {name: sizes[-1] for name, sizes in run.processes_mb.items() if sizes},
    }
    if arrivals is not None:
        p50, p99 = np.percentile(arrivals.between(run.result["begin"], run.result["end"]).latencies_ms(), [50, 99])
        figures |= {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}
    return figures


def _median(figures: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {
        key: round(statistics.median(one[key] for one in figures), 3)
        for key, value in figures[0].items()
        if isinstance(value, int | float)
    }
    return figures[-1] | numbers
