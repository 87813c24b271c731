"""Results that are kept for the page of plots, `docs/benchmarks`, and the drawing of it.

What is kept is what `--json` prints. A run of some of Nexmark's queries takes its place beside those that are there.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS
from benchmarks.environments import python_of

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def keep(result: dict[str, Any], folder: Path = FOLDER) -> None:
    """As `FOLDER/results/NAME.json`."""
    path = folder / "results" / f"{result['workload']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if "queries" in result:
        queries = result["queries"]
        if path.exists() and (before := json.loads(path.read_text()))["events"] == result["events"]:
            queries = before["queries"] | queries
        result = {
            **result,
            "queries": {name: queries[name] for name in sorted(queries, key=lambda name: int(name[1:]))},
        }
    path.write_text(json.dumps(result, indent=1) + "\n")


def draw(folder: Path = FOLDER) -> None:
    """Plots and page, by a program with an environment of its own.

    Raises:
        subprocess.CalledProcessError: it failed, or the library cannot be installed.
    """
    subprocess.run([python_of("plots"), PROGRAMS / "plot_results.py", folder], check=True)
