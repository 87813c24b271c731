"""The baseline of `benchmarks operators`: each operator's cost as a multiple of the plain loop's.

The comparison uses ratios, because an operator and its loop run on the same machine under the same load. A run is compared
only if it has as many records as the baseline. This command makes a run the baseline:

    python -m benchmarks operators --records 60000 --repetitions 9 --json | python -m benchmarks.operators_baseline
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).with_name("operators_baseline.json")
TOLERANCE = 1.10


def baseline(records: int) -> Mapping[str, float]:
    """Return the multiple of the plain loop by operator, or nothing if the baseline has another number of records."""
    kept = json.loads(BASELINE.read_text())
    ratios: dict[str, float] = kept["ratios"] if kept["records"] == records else {}
    return ratios


def is_dearer(ratio: float, before: float) -> bool:
    """Return whether a ratio is more than a tenth above the baseline."""
    return ratio > before * TOLERANCE


def save(result: Mapping[str, Any], path: Path = BASELINE) -> None:
    """Save the baseline. `result` is the output of `python -m benchmarks operators --json`."""
    ratios = {name: figures["ratio"] for name, figures in result["operators"].items()}
    kept = {"records": result["records"], "machine": result["machine"], "ratios": ratios}
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    save(json.loads(sys.stdin.read().splitlines()[-1]))
