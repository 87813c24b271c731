"""Spark's DataFrames at the borders of a job: `from_spark`, `to_spark`.

The JobManager's process is Spark's driver, and the job's slots are Spark's executors, so a DataFrame needs no other
cluster. Between two epochs the slots are free for it; it has them alone then (`SparkAccess.exclusive`), which the pipelined
runner cannot offer.

Rows cross the border as *staged files*: Arrow record batches in the `shared/` folder of the job's checkpoints, written and
read on the executors, never by the driver. A checkpoint names those it needs, as it names state files, so they are
counted, verified, copied into savepoints and deleted with them.

* `source`, `feed`, `query_log`: a micro-batch of the streaming query is staged, then enters the job as splits, one per
  file. The next one follows when it was read. What the query needs to go on behind it is part of the checkpoint.
* `sink`: the rows of a checkpoint are staged in every sink subtask, and when it is complete the user's function is called
  with a DataFrame over the files.
"""

from __future__ import annotations

from penstock.connectors.spark.sink import SparkCommitter, SparkSink, SparkWriter
from penstock.connectors.spark.source import SparkEnumerator, SparkSource

__all__ = ["SparkCommitter", "SparkEnumerator", "SparkSink", "SparkSource", "SparkWriter"]
