"""The actions and results of a soak, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def percentile(values: Iterable[float], share: float) -> float:
    """Return the percentile by nearest rank, or nan for no values.

    >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([1.0, 9.0], 0.99)
    (2.0, 9.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


@dataclass
class Report:
    """The report of one run. It is thread-safe, because two threads can do faults."""

    seed: int
    runner: str
    backend: str
    faults: Counter[str] = field(default_factory=Counter)
    """Faults by kind. Each had a visible effect."""
    without_effect: Counter[str] = field(default_factory=Counter)
    """Attempts that do not count: no process to kill at the moment, or no request to disturb."""
    overlapping: int = 0
    """Number of faults in `faults` that happened while the job had not yet recovered from another one."""
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the start of a fault until a completed checkpoint has new records."""
    attempts_failed: int = 0
    """Failovers in the JobManagers' logs."""
    failed_by_foreign_clients: int = 0
    """Visits of foreign clients, without another fault, that made the job fail over."""
    records: int = 0
    seconds: float = 0.0
    load: list[float] = field(default_factory=list)
    """Load average of the machine over a minute, at the start and at the end."""
    memory_mb: dict[str, dict[str, float]] = field(default_factory=dict)
    """Memory of the job's processes, at the start and after the faults."""
    details: dict[str, Any] = field(default_factory=dict)
    left_behind: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, kind: str, *, done: bool) -> None:
        with self._lock:
            (self.faults if done else self.without_effect)[kind] += 1

    def recovered(self, kind: str, seconds: float) -> None:
        with self._lock:
            self.recoveries.setdefault(kind, []).append(seconds)

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)

    @property
    def total(self) -> int:
        return sum(self.faults.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "runner": self.runner,
            "backend": self.backend,
            "faults": self.total,
            "overlapping": self.overlapping,
            "seconds": round(self.seconds, 1),
            "records": self.records,
            "failovers": self.attempts_failed,
            "failed_by_foreign_clients": self.failed_by_foreign_clients,
            "cores": os.cpu_count(),
            "load": self.load,
            "memory_mb": self.memory_mb,
            "kinds": {
                kind: {
                    "faults": count,
                    "share": round(count / self.total, 4),
                    "without_effect": self.without_effect[kind],
                    "recovery_s": durations(self.recoveries.get(kind, [])),
                }
                for kind, count in sorted(self.faults.items())
            },
            "recovery_s": durations([s for times in self.recoveries.values() for s in times]),
            "details": self.details,
            "left_behind": self.left_behind,
            "problems": self.problems,
            "verdict": "failed" if self.problems else "exactly once",
        }

    def __str__(self) -> str:
        summary = self.to_json()
        lines = [
            f"seed {self.seed}, {self.runner}, {self.backend}: {self.total} faults in {self.seconds:.0f} s, "
            f"{self.records} records"
        ]
        for kind, of_kind in summary["kinds"].items():
            lines.append(f"  {of_kind['faults']:4} {kind}: recovered after {of_kind['recovery_s'] or '-'}")
        return "\n".join([*lines, *(f"  {problem}" for problem in self.problems or ["exactly once"])])


def durations(seconds: list[float]) -> dict[str, float]:
    """Return p50, p99 and the maximum, or nothing for no values."""
    if not seconds:
        return {}
    found = {"p50": percentile(seconds, 0.5), "p99": percentile(seconds, 0.99), "max": max(seconds)}
    return {name: round(value, 2) for name, value in found.items()}


def total_of(reports: list[Report]) -> dict[str, Any]:
    """Return the sum of all runs, and each run."""
    recoveries = [s for report in reports for times in report.recoveries.values() for s in times]
    kinds: Counter[str] = Counter()
    for report in reports:
        kinds += report.faults
    return {
        "faults": sum(kinds.values()),
        "kinds": dict(sorted(kinds.items())),
        "recovery_s": durations(recoveries),
        "failovers": sum(report.attempts_failed for report in reports),
        "seconds": round(sum(report.seconds for report in reports), 1),
        "records": sum(report.records for report in reports),
        "verdict": "failed" if any(report.problems for report in reports) else "exactly once",
        "runs": [report.to_json() for report in reports],
    }


def dumps(summary: dict[str, Any]) -> str:
    return json.dumps(summary, indent=1)
