"""Count per key from topic to topic in Pathway: a commit and a snapshot every second, two worker threads of its engine.

    python pathway_kafka.py --servers HOST:PORT --reads in --writes out --out DIR

Its tables change by commits, and it does not emit a count for every reading. For every key that changed since the last commit,
it writes the old count with `diff` -1 and the new one with `diff` 1. Without a licence it persists only its input. After a
crash it repeats the output since the last snapshot, so it delivers at least once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

THREADS = 2
COMMIT_MS = 1000
os.environ["PATHWAY_THREADS"] = str(THREADS)

import pathway as pw  # noqa: E402 - it reads the environment when it is imported


class Reading(pw.Schema):
    sensor_id: str
    ts: int
    temp: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "reads", "writes", "out"):
        arguments.add_argument(f"--{name}", required=True)
    options = arguments.parse_args()
    servers = {"bootstrap.servers": options.servers}
    readings = pw.io.kafka.read(
        {**servers, "group.id": f"pathway-{options.writes}", "auto.offset.reset": "earliest"},
        options.reads,
        schema=Reading,
        format="json",
        mode="static",
        autocommit_duration_ms=COMMIT_MS,
        name="readings",
    )
    counts = readings.groupby(pw.this.sensor_id).reduce(pw.this.sensor_id, n=pw.reducers.count())
    pw.io.kafka.write(counts, servers, options.writes, format="json")
    snapshots = pw.persistence.Backend.filesystem(str(Path(options.out).resolve() / "snapshots"))
    persistence = pw.persistence.Config(snapshots, snapshot_interval_ms=COMMIT_MS)
    begin = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence)
    print("RESULT " + json.dumps({"begin": begin, "end": time.time()}))


if __name__ == "__main__":
    main()
