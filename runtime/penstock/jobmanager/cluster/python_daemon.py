"""The process that Python workers are forked from: PySpark's own daemon, started in less time (`spark.python.daemon.module`).

Spark puts PySpark as a zip file in front of a worker's path. Python compiles every module of a zip at every start, seconds
of processor time for each daemon, of which there is one per executor, and one per slot of the batched runner. The installed package has its modules
compiled. The engine's modules are imported here once, before workers are forked, which then share them.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

PRELOADED = (
    "pyspark.worker",
    "penstock.taskmanager.worker",
    "penstock.taskmanager.operators.aggregate.reduce",
    "penstock.checkpoint.store.local_store",
    "penstock.taskmanager.operators.simple",
    "penstock.connectors.collect",
    "penstock.connectors.collection",
    "encodings.idna",
    "penstock.datastream",
    "penstock.datastream.data_stream",
    "penstock.datastream.functions",
    "penstock.datastream.state",
    "penstock.datastream.stream_execution_environment",
    "penstock.datastream.window",
    "penstock.datastream.connectors.file_system",
)
"""What nearly every job imports, once for all workers instead of in each. A job's own modules are left to its workers: what a module opens must not be shared."""


class _NoCollection:
    """Stands for `gc` in PySpark's daemon, which looks at every object of the process after each task: at all state.

    The collector runs by its thresholds all the same (`taskmanager.worker`).
    """

    @staticmethod
    def collect() -> int:
        return 0


def prefer_installed(path: list[str]) -> list[str]:
    """The path without PySpark's zip files.

    >>> prefer_installed(["/spark/python/lib/pyspark.zip", "/app", "/spark/python/lib/py4j-0.10.9.9-src.zip"])
    ['/app']
    """
    return [entry for entry in path if not entry.endswith(("/pyspark.zip", "-src.zip"))]


def main() -> None:
    # `jvm/StreamRunner.java` says both for its own side. A thread that reads ahead would cost switches here.
    os.environ.pop("SPARK_PIPELINED_UDF", None)
    os.environ.pop("SPARK_BUFFER_SIZE", None)
    # The cluster's secret, which the executor has from here: what a job's functions start or print is not to have it.
    os.environ.pop("_SPARK_AUTH_SECRET", None)
    sys.path[:] = prefer_installed(sys.path)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    daemon = importlib.import_module("pyspark.daemon")
    vars(daemon)["gc"] = _NoCollection
    daemon.manager()


if __name__ == "__main__":
    main()
