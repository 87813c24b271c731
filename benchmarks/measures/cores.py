"""Two slots on two cores against one on one: W2, wall-clock rate. It says something only on a machine that has nothing else to do.

The levels of a slot are processes, which work at the same time: one slot of W2 keeps nearly two cores busy by itself where it may. So that
the second slot is measured and not the first one's own parallelism, one slot runs on one core and then on both.

What others do on the machine slows two slots down more than one, so the best run of each counts, and stands beside the cores
that others had meanwhile. CPU time per record tells what two slots cost beyond one, whatever else runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.comparison import SYSTEMS, run_once
from benchmarks.execution import Run
from benchmarks.readings import Shape


def cores(records: int | None, repetitions: int) -> dict[str, Any]:
    shape = Shape(records or 5_000_000, 1000, 5000)
    system = next(system for system in SYSTEMS if system.name == "penstock-functions")
    runs: dict[str, list[Run]] = {"one-slot-one-core": [], "one-slot": [], "two-slots": []}
    for _ in range(repetitions):
        for name, found in runs.items():
            slots = "2" if name == "two-slots" else "1"
            with _on(1 if name == "one-slot-one-core" else 2):
                found.append(run_once(replace(system, arguments=(*system.arguments, "--slots", slots)), "w2", shape))
    best = {name: max(found, key=lambda run: run.rate) for name, found in runs.items()}
    return {
        "records": shape.records,
        "systems": {name: _figures(run) for name, run in best.items()},
        "rates": {name: [round(run.rate) for run in found] for name, found in runs.items()},
        "ratio": round(best["two-slots"].rate / best["one-slot-one-core"].rate, 3),
        "ratio_to_one_slot_on_both": round(best["two-slots"].rate / best["one-slot"].rate, 3),
        "goal": 1.7,
    }


@contextmanager
def _on(count: int) -> Iterator[None]:
    """What is started meanwhile has so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _figures(run: Run) -> dict[str, float]:
    return {
        "records_per_second": round(run.rate),
        "cpu_us_per_record": round(run.cpu_us, 3),
        "jvm_cpu_us_per_record": round(run.jvm_cpu_s / run.records * 1e6, 3),
        "others_cores": round(run.others, 2),
    }
