"""W3 and W4 without an engine: one process, dictionaries, no checkpoints, no parallelism.

python python_readings.py w3 --data DIR --out DIR
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

WINDOW_MS = 5000
LATENESS_MS = 10_000
RISE_MS = 1000
EVERY = 200
"""Records between two checks for windows that are over."""


def readings(data: str) -> Iterator[Any]:
    """Read the files in turn, like a job's two sources, so that time advances equally in both."""
    opened = [path.open("rb") for path in sorted(Path(data, "big").glob("*.jsonl"))]
    while opened:
        for file in list(opened):
            lines = file.readlines(64 << 10)
            if not lines:
                opened.remove(file)
                file.close()
            yield from map(orjson.loads, lines)


def means(data: str) -> Iterator[tuple[str, int, float, int]]:
    """Yield mean and count of five seconds of event time by sensor, when the window is over."""
    windows: dict[int, dict[str, list[float]]] = {}
    newest = 0
    for seen, reading in enumerate(readings(data)):
        ts, temperature = reading["ts"], reading["temp"]
        if ts > newest:
            newest = ts
        start = ts - ts % WINDOW_MS
        sensors = windows.get(start)
        if sensors is None:
            sensors = windows[start] = {}
        total = sensors.get(reading["sensor_id"])
        if total is None:
            sensors[reading["sensor_id"]] = [temperature, 1]
        else:
            total[0] += temperature
            total[1] += 1
        if seen % EVERY == 0:
            for over in [start for start in windows if start + WINDOW_MS <= newest - LATENESS_MS]:
                for sensor, (found, count) in windows.pop(over).items():
                    yield sensor, over, found / count, int(count)
    for start, sensors in sorted(windows.items()):
        for sensor, (found, count) in sensors.items():
            yield sensor, start, found / count, int(count)


def alerts(data: str) -> Iterator[tuple[str, int]]:
    """Yield an alert when the temperature of a sensor has risen for a second. Readings of a sensor are in order."""
    last: dict[str, float] = {}
    due: dict[str, int] = {}
    for reading in readings(data):
        sensor, ts, temperature = reading["sensor_id"], reading["ts"], reading["temp"]
        before = last.get(sensor)
        last[sensor] = temperature
        timer = due.get(sensor)
        if timer is not None and ts >= timer:
            yield sensor, timer
            del due[sensor]
            timer = None
        if before is None or temperature < before:
            due.pop(sensor, None)
        elif timer is None:
            due[sensor] = ts + RISE_MS
    yield from due.items()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload", choices=["w3", "w4"])
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    begin = time.time()
    results = Path(options.out, "results")
    results.mkdir()
    with (results / "part-0.csv").open("w") as out:
        for found in (means if options.workload == "w3" else alerts)(options.data):
            out.write(",".join(map(str, found)) + "\n")
    print("RESULT " + json.dumps({"begin": begin, "end": time.time()}))


if __name__ == "__main__":
    main()
