"""Two slots against one: W2, wall-clock rate. It says something only on a machine that has nothing else to do."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from benchmarks.comparison import SYSTEMS, run_once
from benchmarks.readings import Shape


def cores(records: int | None, repetitions: int) -> dict[str, Any]:
    shape = Shape(records or 5_000_000, 1000, 5000)
    system = next(system for system in SYSTEMS if system.name == "penstock-functions")
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for slots, found in rates.items():
            with_slots = replace(system, arguments=(*system.arguments, "--slots", str(slots)))
            found.append(run_once(with_slots, "w2", shape).rate)
    one, two = (statistics.median(found) for found in rates.values())
    return {"records": shape.records, "one": round(one), "two": round(two), "ratio": round(two / one, 3), "goal": 1.7}
