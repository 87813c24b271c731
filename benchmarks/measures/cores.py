"""Two slots against one: W2, wall-clock rate. It says something only on a machine that has nothing else to do.

What others do on the machine slows two slots down more than one, so the best run of each counts, and stands beside the cores
that others had meanwhile. CPU time per record tells what two slots cost beyond one, whatever else runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.comparison import SYSTEMS, run_once
from benchmarks.execution import Run
from benchmarks.readings import Shape


def cores(records: int | None, repetitions: int) -> dict[str, Any]:
    shape = Shape(records or 5_000_000, 1000, 5000)
    system = next(system for system in SYSTEMS if system.name == "penstock-functions")
    runs: dict[int, list[Run]] = {1: [], 2: []}
    for _ in range(repetitions):
        for slots, found in runs.items():
            with_slots = replace(system, arguments=(*system.arguments, "--slots", str(slots)))
            found.append(run_once(with_slots, "w2", shape))
    one, two = (max(found, key=lambda run: run.rate) for found in runs.values())
    return {
        "records": shape.records,
        "systems": {"one": _figures(one), "two": _figures(two)},
        "rates": {str(slots): [round(run.rate) for run in found] for slots, found in runs.items()},
        "ratio": round(two.rate / one.rate, 3),
        "goal": 1.7,
    }


def _figures(run: Run) -> dict[str, float]:
    return {
        "records_per_second": round(run.rate),
        "cpu_us_per_record": round(run.cpu_us, 3),
        "jvm_cpu_us_per_record": round(run.jvm_cpu_s / run.records * 1e6, 3),
        "others_cores": round(run.others, 2),
    }
