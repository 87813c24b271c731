"""The workloads W1-W4: Penstock and its peers on the same readings, interleaved, with the median of several repetitions."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import readings, reference
from benchmarks.environments import cache, python_of, site_packages
from benchmarks.execution import Run, RunFailed, execute
from benchmarks.readings import Shape

MIN_RECORDS = 50_000
PROGRAMS = Path(__file__).parent / "programs"
RUNTIME = Path(__file__).parents[1] / "runtime"


@dataclass(frozen=True)
class System:
    """One way to run the workloads.

    Attributes:
        peer: name of the virtual environment.
        program: file in `programs/`.
        workloads: workloads that the system supports.
        share: share of the records, by benchmark. Slow systems get fewer, because their cost per record is the same.
        goal: upper bound of Penstock's cost as a multiple of this system's cost, by benchmark.
    """

    name: str
    peer: str
    program: str
    workloads: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    share: Callable[[str], float] = lambda name: 1.0
    goal: Callable[[str], float] | None = None

    def environment(self) -> dict[str, str]:
        if self.peer == "penstock":
            return {"PYTHONPATH": str(RUNTIME)}
        if self.peer == "flink":
            return {"PYTHONPATH": str(site_packages("flink"))}
        return {"PYTHONPATH": ""}


@dataclass(frozen=True)
class Benchmark:
    """A workload with a number of keys."""

    workload: str
    keys: int
    jitter_ms: int = 5000


BENCHMARKS = {
    "w1": Benchmark("w1", 1000),
    "w2-1k": Benchmark("w2", 1000),
    "w2-1m": Benchmark("w2", 1_000_000),
    "w3": Benchmark("w3", 1000),
    "w4": Benchmark("w4", 1000, jitter_ms=0),
}
_COLUMNS = ("w1", "w2", "w3")
_ALL = ("w1", "w2", "w3", "w4")
SYSTEMS = [
    System("penstock", "penstock", "penstock_readings.py", _COLUMNS, ("--style", "columns")),
    System("penstock-functions", "penstock", "penstock_readings.py", _ALL, ("--style", "functions")),
    System("penstock-process", "penstock", "penstock_readings.py", ("w2",), ("--style", "process")),
    System("bytewax", "bytewax", "libraries/bytewax_readings.py", _ALL, goal=lambda name: 1.0),
    System("flink-sql", "flink", "flink/flink_sql_readings.py", _COLUMNS, goal=lambda name: 1.0),
    System("pathway", "pathway", "libraries/pathway_readings.py", ("w1", "w3"), goal=lambda name: 1.0),
    System("plain-python", "penstock", "libraries/python_readings.py", ("w3", "w4"), goal=lambda name: 2.5),
    System("pyflink", "flink", "flink/pyflink_readings.py", _ALL, share=lambda name: 0.2, goal=lambda name: 0.1),
    System(
        "spark",
        "spark",
        "spark_readings.py",
        ("w2",),
        share=lambda name: 0.01 if name == "w2-1m" else 0.1,
        goal=lambda name: 0.005 if name == "w2-1m" else 0.05,
    ),
]


def compare(name: str, records: int, repetitions: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Run one benchmark.

    Args:
        only: names of systems (default: all).
    """
    benchmark = BENCHMARKS[name]
    systems = [
        system for system in SYSTEMS if benchmark.workload in system.workloads and (not only or system.name in only)
    ]
    inputs = {system.name: _input(benchmark, max(MIN_RECORDS, int(records * system.share(name)))) for system in systems}
    runs: dict[str, list[Run]] = {system.name: [] for system in systems}
    problems: dict[str, str] = {}
    for repetition in range(repetitions):
        for system in systems:
            if system.name in problems:
                continue
            try:
                run = run_once(system, benchmark.workload, inputs[system.name])
            except (RunFailed, OSError) as error:
                problems[system.name] = str(error)
                print(f"{name} {system.name}: {error}", file=sys.stderr)
                continue
            runs[system.name].append(run)
            print(
                f"{name} {system.name} #{repetition + 1}: {run.cpu_us:.2f} µs CPU per record, {run.rate:,.0f} records/s, "
                f"load {run.load:.1f}, others {run.others:.2f} cores",
                file=sys.stderr,
            )
    figures = {name: summary(found) for name, found in runs.items() if found}
    return {"workload": name, "systems": figures, "ratios": ratios(name, figures), "problems": problems}


def run_once(system: System, workload: str, shape: Shape) -> Run:
    """Run a system on a workload and verify the result.

    Raises:
        RunFailed: the program failed, or Penstock's result is wrong. A peer's wrong result still counts. For example, bytewax drops
            late records on a slow machine, because its event clock advances with the system's clock.
    """
    data = readings.prepare(shape, cache() / "readings")
    out = Path(tempfile.mkdtemp(prefix=f"penstock-benchmark-{system.name}-"))
    try:
        command = [str(python_of(system.peer)), str(PROGRAMS / system.program), workload]
        run = execute(
            [*command, "--data", str(data), "--out", str(out), *system.arguments],
            system.environment(),
            shape.records,
            out / "log.txt",
        )
        wrong = reference.difference(workload, reference.expected(workload, data, shape), run.result, out, shape)
        if wrong is not None:
            if system.peer == "penstock":
                raise RunFailed(f"{system.name} gives a wrong result: {wrong}")
            run.result["wrong"] = wrong
        return run
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _input(benchmark: Benchmark, records: int) -> Shape:
    return Shape(records, benchmark.keys, benchmark.jitter_ms)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians of the runs of one system."""
    return {
        "records": runs[0].records,
        "cpu_us_per_record": round(statistics.median(run.cpu_us for run in runs), 3),
        "jvm_cpu_us_per_record": round(statistics.median(run.jvm_cpu_s / run.records * 1e6 for run in runs), 3),
        "records_per_second": round(statistics.median(run.rate for run in runs)),
        "startup_s": round(statistics.median(run.startup_s for run in runs), 1),
        "peak_mb": round(max(run.peak_mb for run in runs)),
        "load": round(statistics.median(run.load for run in runs), 1),
        "others_cores": round(statistics.median(run.others for run in runs), 2),
        "wrong": [run.result["wrong"] for run in runs if "wrong" in run.result],
        "runs": [round(run.cpu_us, 3) for run in runs],
    }


def ratios(name: str, figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return Penstock's cost divided by each peer's. Use the declarative form if it exists, and Python functions."""
    found: dict[str, dict[str, Any]] = {}
    own = [system for system in figures if system.startswith("penstock")]
    for system in SYSTEMS:
        if system.goal is None or system.name not in figures or not own:
            continue
        cost = figures[system.name]["cpu_us_per_record"]
        by_style = {style: round(figures[style]["cpu_us_per_record"] / cost, 4) for style in own}
        goal = system.goal(name)
        found[system.name] = {**by_style, "goal": goal, "met": by_style[own[0]] <= goal}
    return found
