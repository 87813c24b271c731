"""A Spark job without work that prepares the driver and a warm executor for the first attempt.

The first Spark job of a driver and of an executor takes a second longer than the next one. The JVMs load classes, and the executor starts its
Python daemon. A standby runs this job while it waits, so a takeover need not wait for it.
"""

from __future__ import annotations

import logging
import struct

from pyspark.core.rdd import _wrap_function

from penstock.jobmanager.cluster.slots import Slot
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.runners.spark_runner import TaskContext
from penstock.taskmanager.exchange.row_stream import RowSerializer, discard

LEVELS = 2
"""Two levels, so that the exchange between them is prepared, too."""
_NAME = "warm-up"
_ROW = b"\0"
_BLOCK = struct.pack(">i", len(_ROW)) + _ROW
_BLOCK = struct.pack(">i", len(_BLOCK)) + _BLOCK

logger = logging.getLogger(__name__)


def warm_up(cluster: SparkCluster, executor_id: str) -> None:
    """Run the job on an executor, and wait for its end. A failure has no effect on jobs."""
    try:
        executor = next((found for found in cluster.registered() if found.id == executor_id), None)
        if executor is None:
            return
        context = TaskContext(cluster.context)
        functions = [_wrap_function(context, discard, RowSerializer(), RowSerializer()) for _ in range(LEVELS)]
        group = f"{_NAME}-{executor_id}"
        cluster.run_epoch(
            _BLOCK,
            [Slot(executor, 0)],
            cluster.new_function_array(functions),
            job_id=_NAME,
            pipelined=True,
            group=group,
        )
        logger.info("executor %s is warm", executor_id)
    except Exception as error:  # the executor or the driver may end at any time
        logger.info("executor %s was not warmed up: %s", executor_id, error)
