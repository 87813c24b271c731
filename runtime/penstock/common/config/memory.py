"""The division of a container's memory: one model for the operator, the engine and REST. Pure; all sizes are in bytes.

The container of a TaskManager may use `taskmanager.memory.process.size`. This memory has these parts:

    framework         `penstock worker`, and the process from which Python workers are forked.
                      Also the warm executor for a standby, if `penstock.worker.warm-executor` is true
    heap              upper bound of the executor's JVM heap, which holds all slots:
                      a share of the rest, or `penstock.executor.memory-mb`
    JVM overhead      classes, code, threads and network buffers of the JVM
    of each slot:
      managed         RocksDB's block caches and write buffers, if RocksDB is the state backend
      Python          the rest: the user's code, records in transit, and state of the hashmap backend

The container of a JobManager (`jobmanager.memory.process.size`) has the heap and overhead of Spark's driver, and
Python.

Linux kills a container that exceeds its limit, whichever process allocated the last page. RocksDB gets its share as a
limit and respects it. A JVM heap has a limit, too, but Spark refuses a limit below `MIN_JVM_HEAP`. In a small container
the heap could therefore grow beyond its share. Only DataFrames use that much heap, because all other records are in
Python.

Python has no such limit, so it gets the rest of the container. `shortages` reports if the rest is less than the
processes need before the first record. These needs were measured (PSS, pipelined runner, levels 1 to 3, 100 records/s):

- `penstock worker`: 73 MiB
- an executor: 65 MiB and its heap
- a Python daemon: 37 MiB, and 12 to 34 MiB for each level
- the Python process of a JobManager: 100 MiB

The keys are Flink's if Flink has the setting
(https://nightlies.apache.org/flink/flink-docs-release-2.0/docs/deployment/memory/mem_setup/). All slots of a
TaskManager share one heap, as in Flink. Flink counts Python's memory as managed memory. In Penstock, Python has most of
the container.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.config import options
from penstock.common.configuration import Configuration

MIB = 2**20

FRAMEWORK = 112 * MIB
"""Memory of `penstock worker` and a Python daemon."""
WARM_EXECUTOR = 192 * MIB
"""Memory of an idle executor for a master on standby, with its Python daemon."""
MIN_HEAP = 128 * MIB
"""Smallest useful heap. Spark's JVMs start with a heap of this size and use about 30 MiB of it. If the heap is smaller,
they collect garbage all the time.
"""
MIN_HEAP_PER_SLOT = 16 * MIB
"""Addition to the smallest heap for each slot after the first. Records that wait at the exchanges of the slot use
it."""
MIN_JVM_HEAP = 480 * MIB
"""Smallest heap that Spark accepts. Spark reserves 300 MiB of every heap and refuses a heap below 450 MiB. The JVM
reports a little less than its heap.
"""
DEFAULT_HEAP = 512 * MIB
"""Heap of an executor with one slot if no size is configured. A heap that is computed as a share is never larger than
this, because records are in Python.
"""
DEFAULT_HEAP_PER_SLOT = DEFAULT_HEAP - 300 * MIB
"""Heap of each slot after the first. It is the part of the first slot's heap that Spark leaves free."""
OVERHEAD_PER_SLOT = 16 * MIB
"""Overhead of each slot after the first: threads and network buffers of its tasks."""
DEFAULT_DRIVER_HEAP = 640 * MIB
PYTHON_WORKER = 40 * MIB
"""Memory of each level of the job graph. The batched runner has one worker for all levels of a slot, and a daemon beside it."""
JOBMANAGER_PYTHON = 128 * MIB
CLUSTER_PROCESS = 72 * MIB
"""Memory of the parent of a JobManager whose executors survive it."""
_DRIVER_SHARE = 0.5
_ROUND = 64 * MIB
"""Recommended sizes are multiples of this size."""


@dataclass(frozen=True)
class TaskManagerMemory:
    """The memory of a TaskManager with this number of slots. Each slot has its own amount of every field that ends in `_per_slot`."""

    slots: int
    process: int | None
    """Limit of the container; None if it is not configured."""
    heap: int
    overhead: int
    managed_per_slot: int | None
    """Memory of RocksDB. None if there is no overall bound: the backend is hashmap, or no size is configured."""
    python_per_slot: int | None
    """The rest for Python. It is negative if the other parts need more than the container has."""
    framework: int = FRAMEWORK

    def as_configuration(self) -> dict[str, int]:
        """Return `memoryConfiguration` of `GET /taskmanagers/:id`: Flink's names with the sums of all slots, and `python`."""
        managed = (self.managed_per_slot or 0) * self.slots
        found = {
            "frameworkHeap": self.framework,
            "taskHeap": self.heap,
            "managedMemory": managed,
            "jvmOverhead": self.overhead,
        }
        if self.process is not None and self.python_per_slot is not None:
            found |= {"python": max(0, self.python_per_slot) * self.slots, "totalProcessMemory": self.process}
        return found


@dataclass(frozen=True)
class JobManagerMemory:
    process: int | None
    heap: int
    overhead: int
    python: int | None
    """The rest for Python. It is negative if the other parts need more than the container has."""


def task_manager_memory(conf: Configuration, slots: int | None = None) -> TaskManagerMemory:
    """Return the memory of a TaskManager.

    Args:
        slots: number of slots; None means the configured number.

    >>> memory = task_manager_memory(Configuration({"taskmanager.memory.process.size": "2gb"}))
    >>> memory.heap // MIB, memory.python_per_slot // MIB
    (512, 1328)
    """
    slots = slots or conf.get(options.TASK_SLOTS)
    process = conf.get(options.TASKMANAGER_PROCESS_SIZE)
    overhead = conf.get(options.JVM_OVERHEAD) + (slots - 1) * OVERHEAD_PER_SLOT
    rocksdb = conf.get(options.STATE_BACKEND) == "rocksdb"
    given_heap, given_managed = conf.get(options.EXECUTOR_MEMORY_MB), conf.get(options.MANAGED_SIZE)
    fixed = conf.get(options.ROCKSDB_FIXED_PER_SLOT)
    managed = None
    if rocksdb and (fixed is not None or given_managed is not None):
        managed = fixed if fixed is not None else (given_managed or 0) // slots
    heap = DEFAULT_HEAP + (slots - 1) * DEFAULT_HEAP_PER_SLOT if given_heap is None else given_heap * MIB
    framework = _framework(conf)
    if process is None:
        return TaskManagerMemory(slots, None, max(_min_heap(slots), heap), overhead, managed, None, framework)
    if given_heap is None:
        heap = min(heap, int((process - framework) * conf.get(options.HEAP_FRACTION)))
    heap = max(_min_heap(slots), heap // MIB * MIB)
    slot_memory = (process - framework - heap - overhead) // slots
    if rocksdb and managed is None:
        managed = max(0, int(slot_memory * conf.get(options.MANAGED_FRACTION)))
    return TaskManagerMemory(slots, process, heap, overhead, managed, slot_memory - (managed or 0), framework)


def _framework(conf: Configuration) -> int:
    """Return the memory of a worker's processes outside of its slots."""
    is_warm = conf.get(options.WARM_EXECUTOR) == "true" and conf.get(options.HIGH_AVAILABILITY) != "none"
    return FRAMEWORK + (WARM_EXECUTOR if is_warm else 0)


def job_manager_memory(conf: Configuration) -> JobManagerMemory:
    """Return the memory of a JobManager.

    >>> job_manager_memory(Configuration({"jobmanager.memory.process.size": "1gb"})).heap // MIB
    400
    """
    process, configured_heap = conf.get(options.JOBMANAGER_PROCESS_SIZE), conf.get(options.JOBMANAGER_HEAP)
    overhead = conf.get(options.JVM_OVERHEAD)
    if process is None:
        return JobManagerMemory(None, max(MIN_HEAP, configured_heap or DEFAULT_DRIVER_HEAP), overhead, None)
    share = min(DEFAULT_DRIVER_HEAP, int((process - _jobmanager_python(conf) - overhead) * _DRIVER_SHARE))
    heap = max(MIN_HEAP, (configured_heap or share) // MIB * MIB)
    return JobManagerMemory(process, heap, overhead, process - heap - overhead)


def _jobmanager_python(conf: Configuration) -> int:
    """Return the memory of a master's Python processes."""
    return JOBMANAGER_PYTHON + (CLUSTER_PROCESS if conf.get(options.KEEP_EXECUTORS) else 0)


def effective(conf: Configuration) -> dict[str, str]:
    """Return the sizes that processes get, under the keys that would configure these sizes."""
    worker, master = task_manager_memory(conf), job_manager_memory(conf)
    found = {
        options.EXECUTOR_MEMORY_MB.key: str(jvm_heap(worker.heap) // MIB),
        options.JOBMANAGER_HEAP.key: f"{jvm_heap(master.heap) // MIB}mb",
    }
    if worker.managed_per_slot is not None:
        found[options.MANAGED_SIZE.key] = f"{worker.managed_per_slot * worker.slots}b"
    return found


def jvm_heap(share: int) -> int:
    """Return the heap (`-Xmx`) of a Spark JVM that has this share of a container.

    >>> jvm_heap(128 * MIB) // MIB, jvm_heap(600 * MIB) // MIB
    (480, 600)
    """
    return max(MIN_JVM_HEAP, share)


def min_task_manager_memory(slots: int, levels: int = 3, overhead: int = 96 * MIB) -> int:
    """Return the memory that an idle TaskManager needs. If no size is configured, its pod requests this memory.

    >>> [min_task_manager_memory(slots) // MIB for slots in (1, 2, 4)]
    [456, 608, 912]
    """
    jvm = _min_heap(slots) + overhead + (slots - 1) * OVERHEAD_PER_SLOT
    return FRAMEWORK + jvm + slots * _required_python(levels)


def min_job_manager_memory(overhead: int = 96 * MIB) -> int:
    """Return the memory that an idle JobManager needs.

    >>> min_job_manager_memory() // MIB
    352
    """
    return JOBMANAGER_PYTHON + MIN_HEAP + overhead


@dataclass(frozen=True)
class Shortage:
    """A container that Linux would kill, with an explanation and the remedy."""

    message: str
    remedy: str


def shortages(conf: Configuration, levels: int, state_per_slot: int = 0) -> list[Shortage]:
    """Return the containers whose limit is too small for the job. A container without a known limit is left out.

    Args:
        levels: number of levels of the job graph.
        state_per_slot: bytes of state of the slot with the most state, as measured in a checkpoint. The objects of
            hashmap state take more memory.
    """
    return [
        found for found in (_worker_shortage(conf, levels, state_per_slot), _master_shortage(conf)) if found is not None
    ]


def _worker_shortage(conf: Configuration, levels: int, state_per_slot: int) -> Shortage | None:
    memory = task_manager_memory(conf)
    if memory.process is None or memory.python_per_slot is None:
        return None
    in_python = 0 if conf.get(options.STATE_BACKEND) == "rocksdb" else state_per_slot
    need = _required_python(levels) + in_python
    if memory.python_per_slot >= need:
        return None
    rocksdb = f"RocksDB {_mib(memory.managed_per_slot)}, " if memory.managed_per_slot else ""
    python = f"Python {_mib(need)} for {levels} level{'s' if levels > 1 else ''}"
    if in_python:
        python += f" (including {_mib(in_python)} for the state of the newest checkpoint)"
    total = memory.framework + memory.heap + memory.overhead + memory.slots * ((memory.managed_per_slot or 0) + need)
    warm = " and its warm executor" if memory.framework > FRAMEWORK else ""
    message = (
        f"Linux would kill a worker for its memory: {memory.slots} slot{'s' if memory.slots > 1 else ''} need "
        f"{_mib(total)} ({_mib(memory.framework)} for the worker itself{warm}, JVM heap {_mib(memory.heap)}, JVM overhead "
        f"{_mib(memory.overhead)}, and for each slot {rocksdb}{python}), and {options.TASKMANAGER_PROCESS_SIZE.key} is "
        f"{_mib(memory.process)}"
    )
    enough = _min_container_size(conf, memory.process, memory.slots, need)
    fewer = next((n for n in range(memory.slots - 1, 0, -1) if _python_per_slot(conf, memory.process, n) >= need), None)
    or_fewer = f", or lower {options.TASK_SLOTS.key} to {fewer}" if fewer else ""
    return Shortage(message, f"raise {options.TASKMANAGER_PROCESS_SIZE.key} to {_mib(enough)}{or_fewer}")


def _master_shortage(conf: Configuration) -> Shortage | None:
    memory, python = job_manager_memory(conf), _jobmanager_python(conf)
    if memory.process is None or memory.python is None or memory.python >= python:
        return None
    total = memory.heap + memory.overhead + python
    key = options.JOBMANAGER_PROCESS_SIZE.key
    return Shortage(
        f"Linux would kill the master for its memory: it needs {_mib(total)} (JVM heap {_mib(memory.heap)}, JVM overhead "
        f"{_mib(memory.overhead)}, Python {_mib(python)}), and {key} is {_mib(memory.process)}",
        f"raise {key} to {_mib(-(-total // _ROUND) * _ROUND)}",
    )


def _required_python(levels: int) -> int:
    return max(2, levels) * PYTHON_WORKER


def _min_heap(slots: int) -> int:
    return MIN_HEAP + (slots - 1) * MIN_HEAP_PER_SLOT


def _python_per_slot(conf: Configuration, process: int, slots: int) -> int:
    """Return Python's part of a slot for a container of this size with this number of slots."""
    tried = Configuration({**conf.to_dict(), options.TASKMANAGER_PROCESS_SIZE.key: f"{process}b"})
    return task_manager_memory(tried, slots).python_per_slot or 0


def _min_container_size(conf: Configuration, process: int, slots: int, need: int) -> int:
    """Return a container size of at least `process` that leaves Python `need` bytes for each slot. It is a multiple of
    `_ROUND`."""
    size = -(-process // _ROUND) * _ROUND
    while _python_per_slot(conf, size, slots) < need:
        size += max(_ROUND, size // 64 // _ROUND * _ROUND)
    return size


def _mib(size: int) -> str:
    """Format a size as Kubernetes writes it. Options accept this form, too."""
    return f"{round(size / MIB)}Mi"
