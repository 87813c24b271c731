"""Create the table and write a file of readings, or show the table's totals.

python readings.py write FOLDER [COUNT]
python readings.py show
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from cassandra.cluster import Cluster

STATIONS = ("north", "east", "south", "west")


def session() -> Any:
    host, port = os.environ.get("CASSANDRA_HOST", "localhost"), int(os.environ.get("CASSANDRA_PORT", "9042"))
    return Cluster([host], port=port).connect()


def write(folder: Path, count: int) -> None:
    cassandra = session()
    cassandra.execute(
        "CREATE KEYSPACE IF NOT EXISTS weather WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    cassandra.execute(
        "CREATE TABLE IF NOT EXISTS weather.rain (station text, day text, readings bigint, millimetres bigint, PRIMARY KEY (station, day))"
    )
    cassandra.cluster.shutdown()
    chance = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{time.time_ns()}.jsonl"
    with (folder / f".{name}").open("w") as lines:  # the job does not read a name that starts with a dot
        for _ in range(count):
            reading = {"station": chance.choice(STATIONS), "day": f"2013-07-{chance.randrange(1, 32):02}"}
            lines.write(json.dumps({**reading, "millimetres": chance.randrange(20)}) + "\n")
    (folder / f".{name}").rename(folder / name)
    print(f"{count} readings written to {folder / name}")


def show() -> None:
    cassandra = session()
    totals = dict.fromkeys(STATIONS, (0, 0))
    for row in cassandra.execute("SELECT station, readings, millimetres FROM weather.rain"):
        readings, millimetres = totals[row.station]
        totals[row.station] = readings + row.readings, millimetres + row.millimetres
    cassandra.cluster.shutdown()
    for station, (readings, millimetres) in totals.items():
        print(f"{station}: {readings} readings, {millimetres} mm")


def main() -> None:
    if sys.argv[1:2] == ["write"] and len(sys.argv) > 2:
        write(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1_000)
    elif sys.argv[1:] == ["show"]:
        show()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
