"""The parts of the engine in the base image, on one pod: the driver's JVM, an executor, Python.

Run in a container with a read-only root file system, as a user without rights. It prints one JSON object on its last line.
Authentication and encryption are on, because they need jars that a plain job does not load.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from penstock.jobmanager.cluster.local_cluster import LocalCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig

WORK = Path("/tmp/work")


def main() -> None:
    began = time.monotonic()
    warehouse = {"spark.sql.warehouse.dir": str(WORK / "warehouse")}
    cluster = LocalCluster(config=ClusterConfig(driver_memory_mb=500, executor_memory_mb=600, extra_conf=warehouse))
    cluster.start()
    cluster.ensure_slots(2)
    context = cluster.spark.context
    counted = context.parallelize(range(1000), 2).map(lambda x: (x % 7, 1)).reduceByKey(lambda a, b: a + b, 2)
    spark = cluster.spark.sql.session()
    results: dict[str, object] = {"counts": sum(counted.collectAsMap().values())}
    for kind in ("parquet", "orc", "json", "csv"):
        spark.range(1000).write.format(kind).save(str(WORK / kind))
        results[kind] = spark.read.format(kind).schema("id long").load(str(WORK / kind)).count()
    stream = spark.readStream.schema("id long").parquet(str(WORK / "parquet"))
    seen: list[int] = []
    query = stream.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count())).trigger(availableNow=True)
    query.start(checkpointLocation=str(WORK / "log")).awaitTermination()
    results |= {
        "stream": sum(seen),
        "user": getpass.getuser(),
        "uid": os.getuid(),
        "arrow": pyarrow.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(results), flush=True)
    # Spark's remaining processes end with the container
    os._exit(0)


if __name__ == "__main__":
    main()
