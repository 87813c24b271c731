"""A job of ten records on an embedded cluster, and the moments of its start.

    python penstock_startup.py --started 1795000000.0

`--started`: start of the process (s since the epoch).
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--started", type=float, required=True)
    arguments.add_argument("--local-cluster", default="processes")
    options = arguments.parse_args()
    moments = {"started": options.started, "python": time.time()}

    from penstock.common.configuration import Configuration
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.graph.executor import executing_on
    from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
    from penstock.jobmanager.cluster.jvm.driver import DriverJvm
    from penstock.jobmanager.cluster.local_cluster import LocalCluster
    from penstock.jobmanager.cluster.spark_cluster import SparkCluster
    from penstock.jobmanager.process.session.default_executor import DefaultExecutor

    moments["clusters imported"] = time.time()
    noted(moments, SparkCluster, "start_jvm", "start of the driver's JVM")
    noted(moments, DriverJvm, "gateway", "engine imported, driver's JVM")
    noted(moments, SparkCluster, "start", "SparkContext")
    for cluster in (EmbeddedCluster, LocalCluster):
        noted(moments, cluster, "ensure_slots", "executors")
    configuration = Configuration({"penstock.local-cluster": options.local_cluster})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.from_collection([(n % 2, n) for n in range(10)]).key_by(0).reduce(lambda total, one: one).print()
    executor = DefaultExecutor()
    with executing_on(executor):
        env.execute("ten records")
    moments["job"] = time.time()
    executor.stop()
    moments["stopped"] = time.time()
    print("RESULT " + json.dumps({"begin": options.started, "end": time.time(), "moments": moments}), flush=True)


def noted(moments: dict[str, float], owner: Any, name: str, step: str) -> None:
    """Record the moment at which a call returns."""
    call = getattr(owner, name)

    def calling(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        finally:
            moments[step] = time.time()

    setattr(owner, name, calling)


if __name__ == "__main__":
    main()
