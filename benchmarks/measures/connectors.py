"""The cost of a record at each connector, in both directions, and with the system's client without Penstock, in turn.

CPU time is that of this process, in which the job and the bare client run. Servers are separate processes and do not count.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.connectors.case import Case, Way
from benchmarks.connectors.cost import Cost
from benchmarks.connectors.systems import NAMES, opened
from penstock.taskmanager.worker import GC_ALLOCATIONS
from tools.errors import ToolError

RECORDS = 300_000
_WARM_UP = 20
"""A twentieth of the records is the warm-up, for imports and objects that are created once."""
_MIN_RECORDS = 20
"""Records of a run, at least."""


def connectors(records: int | None, repetitions: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Return the run with the least CPU time of several runs.

    Args:
        records: records of the cheapest cases; expensive cases get a share of them.
        only: names of systems (default: all).
    """
    unknown = set(only) - set(NAMES)
    if unknown:
        raise SystemExit(f"unknown systems {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    found: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)  # like in a worker, and also for the bare clients
    try:
        for name in only or NAMES:
            with tempfile.TemporaryDirectory(prefix=f"penstock-connectors-{name}-") as folder:
                _measure(name, Path(folder), records or RECORDS, repetitions, found, problems)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    return {
        "records": records or RECORDS,
        "repetitions": repetitions,
        "whole": not only,
        "connectors": found,
        "problems": problems,
    }


def _measure(
    name: str,
    folder: Path,
    records: int,
    repetitions: int,
    found: dict[str, dict[str, Any]],
    problems: dict[str, str],
) -> None:
    try:
        with opened(name, folder) as cases:
            for case in cases:
                try:
                    found[case.name] = compared(case, max(_MIN_RECORDS, round(records * case.share)), repetitions)
                except Exception as error:  # continue with the other cases
                    problems[case.name] = f"{type(error).__name__}: {error}"
                    print(f"{case.name}: {problems[case.name]}", file=sys.stderr)
    except (ToolError, ImportError) as error:
        problems[name] = f"{type(error).__name__}: {error}"
        print(f"{name}: {problems[name]}", file=sys.stderr)


def compared(case: Case, records: int, repetitions: int) -> dict[str, Any]:
    """Run a case, and the bare client.

    Raises:
        Wrong: the records differ from the expected ones.
    """
    ways = [case.penstock] if case.bare is None else [case.penstock, case.bare]
    for way in ways:
        way(max(_MIN_RECORDS, records // _WARM_UP))
    runs: dict[Way, list[Cost]] = {way: [] for way in ways}
    for _ in range(repetitions):
        for way in ways:
            runs[way].append(way(records))
    ours = _figures(runs[case.penstock])
    figures: dict[str, Any] = {"records": records, **ours}
    line = f"{case.name:24} {ours['cpu_us']:8.2f} µs {ours['records_s']:>11,}/s"
    if case.bare is not None:
        bare = _figures(runs[case.bare])
        figures |= {"bare": {"client": case.against, **bare}, "ratio": round(ours["cpu_us"] / bare["cpu_us"], 2)}
        line += f", bare {bare['cpu_us']:8.2f} µs {bare['records_s']:>11,}/s, {figures['ratio']:.2f} times"
    print(line, file=sys.stderr, flush=True)
    return figures


def _figures(runs: list[Cost]) -> dict[str, Any]:
    least = min(runs, key=lambda run: run.cpu_us)
    return {
        "cpu_us": round(least.cpu_us, 3),
        "records_s": round(least.rate),
        "all_cpu_us": [round(run.cpu_us, 3) for run in runs],
    }
