"""Two slots on two cores compared with one slot on one core: W2, wall-clock rate. The result needs an idle machine.

The levels of a slot are processes that run at the same time. One slot of W2 can therefore use almost two cores. To
measure the second slot and not the parallelism of the first, one slot runs on one core and then on both.

Other processes slow two slots down more than one. The result therefore uses the best run of each, and shows the cores that
other processes used during this run. CPU time per record shows the extra cost of two slots under any load.
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
    """Limit processes that start in the block to this many cores."""
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
