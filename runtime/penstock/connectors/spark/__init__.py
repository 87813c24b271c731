"""Spark DataFrames as source and sink of a job: `from_spark`, `to_spark`.

The JobManager's process is Spark's driver, and the job's slots are Spark's executors, so a DataFrame needs no other
cluster. Between two epochs the slots are free, and a DataFrame then has exclusive use of them (`SparkAccess.exclusive`).
The pipelined runner has no such pause.

Rows move between Spark and the job as *staged files*: Arrow record batches in the `shared/` folder of the job's
checkpoints. Only the executors write and read these files, not the driver. A checkpoint lists the staged files that it needs, as
it lists state files. So staged files are treated like state files: counted, verified, copied into savepoints and deleted with
checkpoints.

* `source`, `feed`, `query_log`: a micro-batch of the streaming query is staged. Its files then enter the job, each as a split. The next
  batch follows when all files of this batch were read. The checkpoint also has the state from which the query continues.
* `sink`: every sink subtask stages the rows of a checkpoint. When the checkpoint is complete, the JobManager calls the user's function
  with a DataFrame over the files.
"""

from __future__ import annotations

from penstock.connectors.spark.sink import SparkCommitter, SparkSink, SparkWriter
from penstock.connectors.spark.source import SparkEnumerator, SparkSource

__all__ = ["SparkCommitter", "SparkEnumerator", "SparkSink", "SparkSource", "SparkWriter"]
