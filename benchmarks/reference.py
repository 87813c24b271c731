"""The exact result of each workload, and its comparison with the result of a run.

W1 and W2 write only a summary: the number of results and a sum over them. The sum of W2 adds up the running counts.
Any lost, duplicate or misplaced record changes it. W3 and W4 write their results to files, which are compared
record for record, up to `Shape.cut_ms`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.readings import EPOCH_MS, Shape

WINDOW_MS = 5000
RISE_MS = 1000
_SUMS_AGREE = 1e-9


def expected(workload: str, data: Path, shape: Shape) -> Any:
    """Return the expected result.

    W1, W2: the summary. W3: {(sensor, window): (mean, count)}. W4: {(sensor, time of the alert)}.
    """
    if workload == "w4":
        return {alert for alert in alerts(data) if alert[1] <= shape.cut_ms}
    source = (
        f"read_json('{data}/big/*.jsonl', format='newline_delimited', "
        "columns={sensor_id:'VARCHAR', ts:'BIGINT', temp:'DOUBLE'})"
    )
    with duckdb.connect(config={"threads": 1}) as db:
        if workload == "w1":
            celsius = "(temp - 32) * 5 / 9"
            count, total = db.execute(f"select count(*), sum({celsius}) from {source} where {celsius} > 20").fetchone()
            return {"count": count, "sum": total}
        if workload == "w2":
            counts = f"select count(*) c from {source} group by sensor_id"
            count, total = db.execute(f"select sum(c), sum(c * (c + 1) / 2) from ({counts})").fetchone()
            return {"count": int(count), "sum": int(total)}
        if workload == "w3":
            rows = db.execute(
                f"select sensor_id, ts - ts % {WINDOW_MS} w, avg(temp), count(*) from {source} group by 1, 2 "
                f"having w + {WINDOW_MS} <= {shape.cut_ms}"
            ).fetchall()
            return {(sensor, window): (mean, count) for sensor, window, mean, count in rows}
    raise ValueError(workload)


def alerts(data: Path) -> list[tuple[str, int]]:
    """Compute W4 in one pass: (sensor, time of the alert) for every rise that lasts. Omit rises that are still open at the end."""
    last: dict[str, float] = {}
    due: dict[str, int] = {}
    found = []
    for path in sorted((data / "big").glob("*.jsonl")):
        for line in path.open():
            reading = json.loads(line)
            sensor, time, temperature = reading["sensor_id"], reading["ts"], reading["temp"]
            before = last.get(sensor)
            last[sensor] = temperature
            timer = due.get(sensor)
            if timer is not None and time >= timer:
                found.append((sensor, timer))
                del due[sensor]
                timer = None
            if before is None or temperature < before:
                due.pop(sensor, None)
            elif timer is None:
                due[sensor] = time + RISE_MS
    return found


def difference(workload: str, reference: Any, result: dict[str, Any], out: Path, shape: Shape) -> str | None:
    """Return the difference of a run's result from the reference, or None if it is exact. Means may differ in the last digits."""
    if workload in ("w1", "w2"):
        if "count" not in result:
            return None  # a system without a summary: its sink is a black hole
        close = abs(result["sum"] - reference["sum"]) <= _SUMS_AGREE * abs(reference["sum"])
        return None if result["count"] == reference["count"] and close else f"{result} instead of {reference}"
    rows = [row for row in read_rows(out) if int(row[1]) + (WINDOW_MS if workload == "w3" else 0) <= shape.cut_ms]
    if workload == "w3":
        windows = {(row[0], int(row[1])): (float(row[2]), int(row[3])) for row in rows}
        wrong = [
            key
            for key, (mean, count) in reference.items()
            if key not in windows or windows[key][1] != count or abs(windows[key][0] - mean) > 1e-6
        ]
        if wrong or len(rows) != len(reference):
            return f"{len(wrong)} of {len(reference)} windows are missing or wrong, {len(rows)} were written"
        return None
    written = [(row[0], int(row[1])) for row in rows]
    if len(written) != len(reference) or set(written) != reference:
        missing, extra = len(reference - set(written)), len(set(written) - reference)
        return f"{missing} of {len(reference)} alerts are missing, {extra} are wrong, {len(written)} were written"
    return None


def read_rows(out: Path) -> list[list[str]]:
    """Return the CSV lines under `out/results`. Skip hidden files and files whose name marks them as in progress."""
    rows = []
    for path in sorted((out / "results").rglob("*")):
        if path.is_file() and not path.name.startswith(("_", ".")) and path.suffix != ".crc" and path.stat().st_size:
            rows += [line.rstrip("\n").replace('"', "").split(",") for line in path.open()]
    return rows


assert EPOCH_MS % WINDOW_MS == 0
