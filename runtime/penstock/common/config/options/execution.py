"""Runners, epochs and workers."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, int_option

IN_PROCESS = "in-process"
RUNNER = choice_option(
    "penstock.runner",
    ("batched", "pipelined", "auto", IN_PROCESS),
    "auto",
    "Execution of epochs. batched: one Spark job for each epoch. pipelined: one Spark job with pipelined shuffles, "
    "and markers in the stream separate the epochs. auto: batched for jobs with DataFrames (`from_spark`, "
    "`to_spark`) and jobs of more than 16 levels, otherwise pipelined. in-process: all tasks in the process of the "
    "program, without Spark, for tests and debugging with `python job.py` and `penstock run`.",
)
ONE_JVM = "one-jvm"
LOCAL_CLUSTER = choice_option(
    "penstock.local-cluster",
    (ONE_JVM, "processes"),
    ONE_JVM,
    "Cluster that `python job.py` and `penstock run` start. one-jvm: all tasks run in the JVM of the driver. It uses "
    "a third less memory and starts sooner. processes: each TaskManager has the JVM of an executor, as on "
    "Kubernetes. These jobs always use processes: jobs with DataFrames, with more than 64 slots, or with settings of "
    "TaskManagers (taskmanager.numberOfTaskSlots, spark.executor.*).",
)
EPOCH_TARGET = duration_option(
    "penstock.epoch.target",
    timedelta(milliseconds=200),
    "Target duration of an epoch of the batched runner. A shorter epoch lowers latency, and a longer one raises "
    "throughput. An epoch with little input ends sooner, and a pause of the same length follows.",
)
EPOCH_MAX_RECORDS = int_option(
    "penstock.epoch.max-records",
    1_000_000,
    "Maximum number of records that one source subtask reads in an epoch of the batched runner. In both runners, an "
    "epoch reads fewer records if the previous epochs took long.",
    minimum=1,
)
EPOCH_MAX_BYTES = int_option(
    "penstock.epoch.max-bytes",
    128 * 2**20,
    "Approximate maximum number of bytes that one source subtask reads in an epoch of the batched runner. A "
    "record counts with its size in memory.",
    minimum=1,
)
EXECUTOR_MEMORY_MB = int_option(
    "penstock.executor.memory-mb",
    None,
    "Heap of a worker's JVM for all its slots, in MiB. Spark needs at least 480. Python's memory is not included. "
    "Not set: penstock.memory.heap.fraction decides. If taskmanager.memory.process.size is not set either: 512, "
    "plus 212 for each slot after the first.",
    minimum=1,
)
WARM_EXECUTOR = choice_option(
    "penstock.worker.warm-executor",
    ("auto", "true", "false"),
    "auto",
    "Whether a worker keeps an idle executor for a master on standby, so that the tasks start at once when the standby becomes "
    "the leader. true: always. Its memory is part of taskmanager.memory.process.size. auto: while enough memory of the container or "
    "the machine is free. It only applies if high-availability.type is set.",
)
WORKER_HEALTH_PORT = int_option(
    "penstock.worker.health-port",
    -1,
    "Port at which a worker answers /healthz (its event loop runs) and /readyz (it is registered with a master). "
    "-1 means "
    "no port. Not set: the port in the environment variable PENSTOCK_WORKER_HEALTH_PORT, if it is set.",
    minimum=-1,
)
