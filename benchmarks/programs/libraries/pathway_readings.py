"""W1 and W3 with Pathway: two worker threads of its engine, tables and expressions.

    python pathway_readings.py w1 --data DIR --out DIR

Its tables change by commits, and a static input is one commit. It therefore has no running result for every record, which W2
and W4 need. These are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

THREADS = 2
os.environ["PATHWAY_THREADS"] = str(THREADS)

import pathway as pw  # noqa: E402 - it reads the environment when it is imported

WINDOW_MS = 5000


class Reading(pw.Schema):
    sensor_id: str
    ts: int
    temp: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload", choices=["w1", "w3"])
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    (out / "results").mkdir()
    readings = pw.io.jsonlines.read(str(Path(options.data).resolve() / "big"), schema=Reading, mode="static")
    result: dict[str, float] = {}
    if options.workload == "w1":
        celsius = readings.select(pw.this.sensor_id, pw.this.ts, celsius=(pw.this.temp - 32) * 5 / 9)
        warm = celsius.filter(pw.this.celsius > 20.0)
        summary = warm.reduce(count=pw.reducers.count(), sum=pw.reducers.sum(pw.this.celsius))

        def on_change(key: object, row: dict[str, float], time: int, is_addition: bool) -> None:
            if is_addition:
                result.update(row)

        pw.io.subscribe(summary, on_change)
    else:
        windows = readings.windowby(
            pw.this.ts, window=pw.temporal.tumbling(duration=WINDOW_MS), instance=pw.this.sensor_id
        ).reduce(
            sensor=pw.this._pw_instance,
            window=pw.this._pw_window_start,
            mean=pw.reducers.avg(pw.this.temp),
            count=pw.reducers.count(),
        )
        pw.io.csv.write(windows, str(out / "windows.csv"))
    begin = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    end = time.time()
    if options.workload == "w3":
        lines = (out / "windows.csv").read_text().splitlines()
        (out / "results" / "windows.csv").write_text("\n".join([*lines[1:], ""]))
    print("RESULT " + json.dumps({"begin": begin, "end": end, **result}))


if __name__ == "__main__":
    main()
