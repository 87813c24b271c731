"""The saved results for the page of plots, `docs/benchmarks`, and the drawing of this page.

A saved result is the output of `--json`. A run of only some of Nexmark's queries replaces only their results.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.comparison import PROGRAMS
from benchmarks.environments import python_of

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def save(result: dict[str, Any], folder: Path = FOLDER) -> None:
    """Save a result as `FOLDER/results/NAME.json`."""
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
    """Draw plots and page, by a program in a separate environment.

    Raises:
        subprocess.CalledProcessError: it failed, or the library cannot be installed.
    """
    subprocess.run([python_of("plots"), PROGRAMS / "plot_results.py", folder], check=True)
