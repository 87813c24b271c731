"""What the engine does in the base image, on one pod: Spark's Master in the driver's JVM, a Worker, executors, Python.

Run in a container with a read-only root file system, as a user without rights; prints one JSON object on its last line.
Authentication and encryption are on, because they need jars that a plain job does not load.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

SECRET = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "s" * 32,
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
WORK = Path("/tmp/work")


def main() -> None:
    began = time.monotonic()
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.memory", "500m")
    gateway = launch_gateway(conf)
    of_master = gateway.jvm.org.apache.spark.SparkConf(False).set("spark.master.rest.enabled", "false")
    for name, value in SECRET.items():
        of_master.set(name, value)
    master = gateway.jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, of_master)
    url = f"spark://127.0.0.1:{master._1().address().port()}"
    home = Path(pyspark.__file__).parent
    worker = subprocess.Popen(
        [
            *("java", "-Xmx192m", *(f"-D{name}={value}" for name, value in SECRET.items())),
            *("-cp", f"{home}/jars/*", "org.apache.spark.deploy.worker.Worker"),
            *("--host", "127.0.0.1", "--cores", "2", "--memory", "1200m", "--webui-port", "0"),
            *("--work-dir", str(WORK), url),
        ],
        stderr=subprocess.DEVNULL,
    )
    settings = {
        **SECRET,
        "spark.app.name": "image test",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.local.dir": str(WORK),
        "spark.master": url,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(WORK / "warehouse"),
    }
    for name, value in settings.items():
        conf.set(name, value)
    context = SparkContext(gateway=gateway, conf=conf)
    counted = context.parallelize(range(1000), 2).map(lambda x: (x % 7, 1)).reduceByKey(lambda a, b: a + b, 2)
    spark = SparkSession(context)
    results: dict[str, object] = {"counts": sum(counted.collectAsMap().values())}
    for kind in ("parquet", "orc", "json", "csv"):
        spark.range(1000).write.format(kind).save(str(WORK / kind))
        results[kind] = spark.read.format(kind).schema("id long").load(str(WORK / kind)).count()
    stream = spark.readStream.schema("id long").parquet(str(WORK / "parquet"))
    seen: list[int] = []
    query = stream.writeStream.foreachBatch(lambda batch, _: seen.append(batch.count())).trigger(availableNow=True)
    query.start(checkpointLocation=str(WORK / "log")).awaitTermination()
    worker.kill()
    results |= {
        "stream": sum(seen),
        "user": getpass.getuser(),
        "uid": os.getuid(),
        "arrow": pyarrow.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(results), flush=True)
    # what Spark still runs ends with the container
    os._exit(0)


if __name__ == "__main__":
    main()
