"""W2 in PySpark Structured Streaming with `transformWithState`: a Python function with state for every key of a batch."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

FILES_PER_BATCH = 4
"""Two files are one chunk of 50,000 readings."""


class Running(StatefulProcessor):
    def __init__(self, out: str) -> None:
        self.out = out

    def init(self, handle):
        self.state = handle.getValueState("running", "n long, highest double")
        self.count, self.sum = 0, 0

    def handleInputRows(self, key, rows, timerValues):
        state = self.state.get()
        count, highest = (0, float("-inf")) if state is None else (state[0], state[1])
        for row in rows:
            count += 1
            highest = max(highest, row.temp)
            self.count += 1
            self.sum += count
            yield Row(sensor_id=key[0], n=count, highest=highest)
        self.state.update((count, highest))

    def close(self):
        summary = {"count": self.count, "sum": self.sum}
        Path(self.out, f"summary-{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(summary))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload", choices=["w2"])
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    options = arguments.parse_args()
    out = str(Path(options.out).resolve())
    states = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.local.dir": f"{out}/tmp",
        "spark.sql.warehouse.dir": f"{out}/warehouse",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.stateStore.providerClass": states,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH).option("latestFirst", "false")
    readings = files.schema("sensor_id string, ts long, temp double").json(f"{Path(options.data).resolve()}/chunks")
    running = readings.groupBy("sensor_id").transformWithState(
        Running(out), "sensor_id string, n long, highest double", "append", "None"
    )
    writer = running.writeStream.format("noop").outputMode("append").option("checkpointLocation", f"{out}/checkpoints")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    end = time.time()
    first = json.loads(query.recentProgress[0].json)
    begin = datetime.fromisoformat(first["timestamp"].replace("Z", "+00:00")).timestamp()
    spark.stop()
    summaries = [json.loads(path.read_text()) for path in Path(out).glob("summary-*.json")]
    result = {name: sum(summary[name] for summary in summaries) for name in ("count", "sum")}
    print("RESULT " + json.dumps({"begin": begin, "end": end, **result}))


if __name__ == "__main__":
    main()
