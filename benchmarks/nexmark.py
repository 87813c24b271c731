"""`nexmark`: the queries of the Nexmark benchmark on both runners and in Flink SQL, in turn."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache as cached
from pathlib import Path
from typing import Any

from benchmarks import auctions
from benchmarks.comparison import PROGRAMS, RUNTIME
from benchmarks.environments import cache, python_of, site_packages
from benchmarks.execution import Run, RunFailed, execute
from benchmarks.nexmark_reference import QUERIES

EVENTS = 1_000_000
GOAL_US, GOAL_RATIO = 8.0, 1.0
SYSTEMS = ("pipelined", "batched", "flink-sql")
_SEED = {"PYTHONHASHSEED": "0"}
"""Fixes Python's hash seed, because the results are compared by hashes."""


def nexmark(
    events: int | None, repetitions: int, only: Sequence[str] = (), queries: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the µs of CPU per event, by query and system."""
    systems = [system for system in SYSTEMS if not only or system in only]
    data = auctions.prepare(events or EVENTS, cache() / "readings")
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for query in queries or QUERIES:
        runs: dict[str, list[Run]] = {}
        for _ in range(repetitions):
            for system in systems:
                if f"{query} {system}" in problems:
                    continue
                try:
                    run = run_once(query, system, data, events or EVENTS)
                except (RunFailed, OSError, subprocess.CalledProcessError) as error:
                    problems[f"{query} {system}"] = str(error)[-600:]
                    print(f"{query} {system}: {error}", file=sys.stderr)
                    continue
                runs.setdefault(system, []).append(run)
                print(
                    f"{query} {system}: {run.cpu_us:.2f} µs CPU per event, {run.rate:,.0f} events/s, load {run.load:.1f}, "
                    f"others {run.others:.2f} cores",
                    file=sys.stderr,
                )
        found[query] = _figures(runs)
    goal = f"at most {GOAL_US:g} µs, and Flink SQL's cost"
    return {"workload": "nexmark", "events": events or EVENTS, "goal": goal, "queries": found, "problems": problems}


def _figures(runs: dict[str, list[Run]]) -> dict[str, Any]:
    costs = {system: statistics.median(run.cpu_us for run in of_system) for system, of_system in runs.items()}
    figures: dict[str, Any] = {f"{system}_us": round(cost, 2) for system, cost in costs.items()}
    for system, of_system in runs.items():
        figures[f"{system}_jvm_us"] = round(statistics.median(r.jvm_cpu_s / r.records * 1e6 for r in of_system), 2)
    figures["load"] = [round(run.load, 1) for of_system in runs.values() for run in of_system]
    own = costs.get("pipelined")
    if own is not None:
        figures["goal_us"], figures["met"] = GOAL_US, own <= GOAL_US
        if "flink-sql" in costs:
            figures["ratio"] = round(own / costs["flink-sql"], 3)
            figures["goal_ratio"] = GOAL_RATIO
            figures["met"] = figures["met"] and figures["ratio"] <= GOAL_RATIO
    return figures


def run_once(query: str, system: str, data: Path, events: int) -> Run:
    """Run one query on one system, and verify the result.

    Raises:
        RunFailed: the program failed, or the result differs from DuckDB's. Flink's result goes to a black hole and is not checked.
    """
    out = Path(tempfile.mkdtemp(prefix=f"penstock-nexmark-{query}-"))
    try:
        if system == "flink-sql":
            command = [str(python_of("flink")), str(PROGRAMS / "flink/flink_sql_nexmark.py"), query]
            environment = {"PYTHONPATH": str(site_packages("flink"))}
        else:
            command = [sys.executable, str(PROGRAMS / "penstock_nexmark.py"), query, "--runner", system]
            environment = {"PYTHONPATH": str(RUNTIME), **_SEED}
        run = execute([*command, "--data", str(data), "--out", str(out)], environment, events, out / "log.txt")
        if system != "flink-sql":
            got, wanted = {name: run.result[name] for name in ("count", "hash")}, _expected(query, data)
            if got != wanted:
                raise RunFailed(f"{query} on {system} gives {got}, DuckDB {wanted}")
        return run
    finally:
        shutil.rmtree(out, ignore_errors=True)


@cached
def _expected(query: str, data: Path) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.nexmark_reference", query, str(data)]
    root = Path(__file__).parents[1]
    answer = subprocess.run(command, check=True, capture_output=True, cwd=root, env={**os.environ, **_SEED})
    summary: dict[str, int] = json.loads(answer.stdout)
    return summary
