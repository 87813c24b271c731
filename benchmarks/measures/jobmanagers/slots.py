"""The cost of the JobManager per slot, with few slots and with many. The tasks are simulated, everything else is real."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import execute

SLOTS = (16, 64, 256)
GOAL = 1.3
"""Maximum ratio of the cost per slot of many slots to that of few."""


def simulated(slots: int, epochs: int = 60, checkpoints: int = 8) -> dict[str, float]:
    """Run `simulated_jobmanager`: CPU times in ms, bytes, MB."""
    out = Path(tempfile.mkdtemp(prefix="penstock-benchmark-jobmanager-"))
    try:
        options = {"slots": slots, "epochs": epochs, "checkpoints": checkpoints}
        arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        command = [sys.executable, str(PROGRAMS / "simulated_jobmanager.py"), *arguments]
        environment = {"PYTHONPATH": f"{RUNTIME}:{PROGRAMS.parents[1]}"}
        return execute(command, environment, 1, out / "log.txt").result
    finally:
        shutil.rmtree(out, ignore_errors=True)


def jobmanager(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure by slots: CPU time of an epoch, a checkpoint, a restore and a status request, bytes of a manifest, and memory."""
    slots = [count for count in SLOTS if records is None or count <= records]
    found: dict[int, list[dict[str, float]]] = {count: [] for count in slots}
    for _ in range(repetitions):
        for count in slots:
            found[count].append(simulated(count))
    medians = {
        count: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for count, runs in found.items()
    }
    few, many = medians[slots[0]], medians[slots[-1]]
    return {
        "levels": 4,
        "slots": {str(count): {name: round(value, 3) for name, value in of.items()} for count, of in medians.items()},
        "per_slot_many_to_few": {
            name: round((many[name] / slots[-1]) / (few[name] / slots[0]), 2) for name in many if few[name] > 0
        },
        "goal": GOAL,
    }
