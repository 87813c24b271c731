"""`python -m benchmarks NAME [--records N] [--repetitions N] [--json]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from benchmarks import machine, plots
from benchmarks.comparison import BENCHMARKS, SYSTEMS, compare
from benchmarks.measures import COMPARISONS, MEASURES
from benchmarks.measures.connectors import connectors
from benchmarks.nexmark import nexmark

DEFAULT_RECORDS = 5_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "nexmark", "connectors", "plots", *MEASURES, *COMPARISONS])
    parser.add_argument("--records", type=int, default=None, help=f"{DEFAULT_RECORDS:,} in the workloads by default")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--systems", default="", help=f"systems, separated by commas: {', '.join(s.name for s in SYSTEMS)}"
    )
    parser.add_argument("--queries", default="", help="queries of nexmark, separated by commas")
    parser.add_argument("--only", default="", help="systems of connectors, separated by commas: kafka,redis,…")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument(
        "--keep", action="store_true", help="keep the result for the plots, `python -m benchmarks plots`"
    )
    options = parser.parse_args()
    if options.name == "plots":
        plots.draw()
        return 0
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))
    before = machine.describe()
    only = [name for name in options.systems.split(",") if name]
    if options.name == "nexmark":
        queries = [name for name in options.queries.split(",") if name]
        result = nexmark(options.records, options.repetitions, only, queries)
    elif options.name == "connectors":
        systems = [name for name in options.only.split(",") if name]
        result = {"workload": options.name, **connectors(options.records, options.repetitions, systems)}
    elif options.name in BENCHMARKS:
        result = compare(options.name, options.records or DEFAULT_RECORDS, options.repetitions, only)
    elif options.name in COMPARISONS:
        result = {
            "workload": options.name,
            **COMPARISONS[options.name](options.records, options.repetitions, only),
        }
    else:
        result = {"workload": options.name, **MEASURES[options.name](options.records, options.repetitions)}
    result["machine"] = {**before, "load_after": machine.describe()["load"]}
    if options.keep:
        plots.save(result)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 1 if result.get("problems") else 0


def show(result: dict[str, Any], indent: str = "") -> None:
    """Print a result for people."""
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            show(value, indent + "  ")
        else:
            print(f"{indent}{key}: {value}")


if __name__ == "__main__":
    sys.exit(main())
