"""The memory of the JobManager and of the TaskManagers."""

from __future__ import annotations

from penstock.common.config.option import fraction_option, size_option

JOBMANAGER_PROCESS_SIZE = size_option(
    "jobmanager.memory.process.size",
    None,
    "Memory limit of the JobManager's container. The operator sets it to the limit of the pod. The size of the heap "
    "is derived from it.",
)
JOBMANAGER_HEAP = size_option(
    "jobmanager.memory.heap.size",
    None,
    "Heap of the JVM of Spark's driver. Spark needs at least 480mb. Not set: jobmanager.memory.process.size "
    "without Python (128mb) and JVM overhead, divided by two, at most 640mb. If jobmanager.memory.process.size is "
    "not set either: 640mb.",
)
TASKMANAGER_PROCESS_SIZE = size_option(
    "taskmanager.memory.process.size",
    None,
    "Memory limit of a TaskManager's container. The operator sets it to the limit of the pod. The worker uses 112mb, "
    "and its JVM has a share. The slots get equal parts of the rest.",
)
PROGRAM_MEMORY = size_option(
    "penstock.program.memory.limit",
    None,
    "Memory limit of a program's process in a session cluster, with the processes that it starts. A process that uses more is ended. "
    "The value of the cluster is the maximum for programs. Not set: no limit.",
    minimum=128 * 2**20,
)
PROGRAM_WORKER_MEMORY = size_option(
    "penstock.program.memory.worker-limit",
    None,
    "Memory limit of each Python process that runs tasks. Each slot has one for each level of the job graph. If a process uses more, the "
    "job fails, and the restart strategy decides. The value of a session cluster is the maximum for programs. Not set: no limit.",
    minimum=96 * 2**20,
)
PROGRAM_UNPACKED = size_option(
    "penstock.program.max-unpacked-size",
    2**30,
    "Maximum size of the content of a program's archive in a session cluster. A larger archive is refused before it is unpacked. Only the "
    "setting of the cluster has an effect.",
    minimum=2**20,
)
HEAP_FRACTION = fraction_option(
    "penstock.memory.heap.fraction",
    0.35,
    "Share of a worker's memory for the heap of its JVM. The minimum is 128mb, plus 16mb for each slot after the "
    "first. The maximum is 512mb, plus 212mb for each slot after the first. penstock.executor.memory-mb sets an "
    "absolute size instead.",
)
JVM_OVERHEAD = size_option(
    "penstock.memory.jvm-overhead",
    96 * 2**20,
    "Memory of a JVM outside of its heap: classes, code, threads, buffers. The JVM of a worker gets 16mb more for "
    "each slot after the first.",
)
MANAGED_FRACTION = fraction_option(
    "taskmanager.memory.managed.fraction",
    0.4,
    "Share of RocksDB (block caches and write buffers) in the worker's memory that remains after the JVM. Python "
    "gets the rest. Has an effect only with state.backend.type: rocksdb and taskmanager.memory.process.size.",
)
MANAGED_SIZE = size_option(
    "taskmanager.memory.managed.size",
    None,
    "RocksDB's memory in a TaskManager. Each slot gets an equal part. Not set: "
    "taskmanager.memory.managed.fraction decides.",
)
