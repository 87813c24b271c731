"""Draw the results that `benchmarks … --keep` saved, and write the page around them: `plot_results.py FOLDER`.

`FOLDER/results/*.json` are results in the format of `--json`. Each existing result gives a plot and a section of
`FOLDER/README.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "penstock",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "figure.constrained_layout.use": True,
    }
)

OURS, PEER, PLAIN, GOAL = "#1f6f8b", "#d98e4a", "#b8b8b8", "#a33"
Result = dict[str, Any]


def nexmark(result: Result, axes: Any) -> str:
    queries = result["queries"]
    rows = {"Penstock": ("pipelined_us", OURS), "Flink SQL": ("flink-sql_us", PEER)}
    _bars(axes, {name: {q: queries[q].get(key) for q in queries} for name, (key, _) in rows.items()}, [OURS, PEER])
    axes.axvline(8, color=GOAL, linewidth=1, linestyle=":", label="goal")
    axes.set_xlabel("µs of CPU per event")
    missed = [query for query, figures in queries.items() if not figures.get("met")]
    return (
        f"The plot shows the CPU time for each event of the Nexmark queries. Each query processed {result['events']:,} events on two "
        f"slots. Flink SQL was measured in the same run. The goal is {result['goal']}. Queries that miss it: "
        f"{', '.join(missed) or 'none'}."
    )


def operators(result: Result, axes: Any) -> str:
    found = result["operators"]
    series = {"Penstock": "us", "plain Python": "plain_us"}
    _bars(axes, {name: {op: found[op][key] for op in found} for name, key in series.items()}, [OURS, PLAIN])
    axes.plot(
        [found[op]["goal_us"] for op in found],
        range(len(found)),
        "|",
        color=GOAL,
        markersize=12,
        label="goal",
        zorder=3,
    )
    axes.set_xlabel("µs of CPU per record")
    missed = [name for name, figures in found.items() if not figures["met"]]
    return (
        f"The plot compares each operator with the same loop in plain Python, in one process and with {result['records']:,} records. "
        f"The goal is at most twice the time of the loop plus 0.5 µs. Operators that miss it: {', '.join(missed) or 'none'}."
    )


def load(result: Result, axes: Any) -> str:
    shares = result["shares"]
    names = [f"{float(share):.0%}" for share in shares]
    for key, marker in (("p50_ms", "o"), ("p99_ms", "s"), ("p99.9_ms", "^")):
        axes.plot(names, [figures[key] for figures in shares.values()], marker=marker, label=key.removesuffix("_ms"))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("ms from due to arrival")
    axes.set_xlabel(f"of the highest rate, {result['most_per_second']:,} records/s")
    return (
        f"The plot shows the latency of a keyed job on two slots under load, with a checkpoint every {result['checkpoint_s']} s. After a "
        f"burst of 1.5 times the highest rate, the latency was normal again after {result['back_to_normal_s']} s."
    )


def small(result: Result, axes: Any) -> str:
    systems = result["systems"]
    names = {"penstock": "Penstock", "pyflink": "PyFlink, threads"}
    rates = {"idle": "at rest", "10": "10 records/s", "1000": "1,000 records/s"}
    cores = {
        names[system]: {label: systems[system].get(rate, {}).get("cores") for rate, label in rates.items()}
        for system in names
        if system in systems
    }
    _bars(axes, cores, [OURS, PEER])
    axes.set_xlabel("cores")
    return "The plot shows the CPU use of a small job with two slots, one exchange, keyed state and a checkpoint every 10 s."


def workload(result: Result, axes: Any) -> str:
    systems = {name: figures["cpu_us_per_record"] for name, figures in result["systems"].items()}
    _bars(axes, {"": systems}, [OURS])
    axes.set_xlabel("µs of CPU per record")
    return f"Workload `{result['workload']}`."


PLOTS: dict[str, tuple[Callable[[Result, Any], str], str, float]] = {
    "nexmark": (nexmark, "Nexmark", 6.0),
    "operators": (operators, "Operators", 5.0),
    "load": (load, "Latency under load", 3.0),
    "small": (small, "Small jobs", 2.2),
    **{name: (workload, name, 2.0) for name in ("w1", "w2-1k", "w2-1m", "w3", "w4")},
}
"""The drawing function of a result, its heading, and the plot's height in inches."""


def _bars(axes: Any, series: dict[str, dict[str, float | None]], colors: list[str]) -> None:
    """Draw horizontal bars in groups. A missing measurement has no bar."""
    names = list(next(iter(series.values())))
    width = 0.8 / len(series)
    for place, (label, values) in enumerate(series.items()):
        at = [n + (place - (len(series) - 1) / 2) * width for n in range(len(names))]
        found = [values.get(name) or 0 for name in names]
        axes.barh(at, found, width, color=colors[place], label=label)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)


def conditions(result: Result) -> str:
    machine = result["machine"]
    loads = f"Load average: {machine['load'][0]:.1f} before the run, {machine['load_after'][0]:.1f} after it"
    return f"Machine: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}. {loads}. Date: {machine['date']}."


def main() -> None:
    folder = Path(sys.argv[1])
    page = [
        "# Plots",
        "",
        "These plots show saved results of the benchmarks. [benchmarks.md](../benchmarks.md) explains the figures, and why goals were "
        "missed. `python -m benchmarks NAME --keep` saves results in `results`, and `python -m benchmarks plots` creates this page.",
    ]
    for name, (draw, heading, height) in PLOTS.items():
        kept = folder / "results" / f"{name}.json"
        if not kept.exists():
            continue
        result = json.loads(kept.read_text())
        figure, axes = plt.subplots(figsize=(7, height))
        text = draw(result, axes)
        if axes.get_legend_handles_labels()[1] != [""]:
            axes.legend(frameon=False)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
        page += ["", f"## {heading}", "", f"![{heading}]({name}.svg)", "", f"{text} {conditions(result)}"]
    (folder / "README.md").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
