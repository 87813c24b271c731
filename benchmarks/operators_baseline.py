"""What `benchmarks operators` is held against: how many times the plain loop's cost each operator had.

Ratios are compared, since an operator and its loop share the machine and its moods. A run of as many records as the baseline's
tells what has become dearer; any other tells nothing.

    python -m benchmarks operators --records 60000 --repetitions 9 --json | python -m benchmarks.operators_baseline

makes a run the baseline.
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
    """Times the plain loop, by operator; nothing if that was with another number of records."""
    kept = json.loads(BASELINE.read_text())
    ratios: dict[str, float] = kept["ratios"] if kept["records"] == records else {}
    return ratios


def is_dearer(ratio: float, before: float) -> bool:
    """By more than a tenth."""
    return ratio > before * TOLERANCE


def keep(result: Mapping[str, Any], path: Path = BASELINE) -> None:
    """`result`: what `python -m benchmarks operators --json` printed."""
    ratios = {name: figures["ratio"] for name, figures in result["operators"].items()}
    kept = {"records": result["records"], "machine": result["machine"], "ratios": ratios}
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    keep(json.loads(sys.stdin.read().splitlines()[-1]))
