"""The cost of an epoch compared with a bare PySpark job of two Python stages: 1,000 records, one exchange, two slots."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.execution import execute


def epoch(records: int | None, repetitions: int) -> dict[str, Any]:
    """Run `records` / 1,000 epochs, in turn with as many bare jobs."""
    epochs = max(20, (records or 100_000) // 1000)
    ratios, own, bare = [], [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as folder:
            command = [sys.executable, str(PROGRAMS / "penstock_epochs.py"), "--epochs", str(epochs)]
            run = execute(command, {"PYTHONPATH": str(RUNTIME)}, epochs * 1000, Path(folder, "log.txt"))
        own.append(statistics.median(run.result["epochs"]) * 1e3)
        bare.append(statistics.median(run.result["bare"]) * 1e3)
        ratios.append(own[-1] / bare[-1])
    return {
        "epochs": epochs,
        "systems": {"penstock_ms": round(statistics.median(own), 2), "pyspark_ms": round(statistics.median(bare), 2)},
        "ratio": round(statistics.median(ratios), 3),
        "goal": 1.5,
    }
