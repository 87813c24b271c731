"""How the memory of a container is shared out: one model for the operator, the engine and REST. Pure; all sizes in bytes.

A TaskManager's container may use `taskmanager.memory.process.size`. In it are

    framework         `penstock worker`, and the process that Python workers are forked from
    heap              of the executor's JVM, in which all slots are, at most: a share of the rest, or `penstock.executor.memory-mb`
    JVM overhead      its classes, code, threads, network buffers
    of each slot:
      managed         RocksDB's block caches and write buffers, if that is the state backend
      Python          all the rest: the user's code, records on their way, and state of the hashmap backend

and in a JobManager's (`jobmanager.memory.process.size`) heap and overhead of Spark's driver, and Python.

Linux kills what goes beyond the container's limit, whichever process asked for the last page. RocksDB is told its share and keeps
to it. A heap is, too, but Spark refuses one below `LEAST_JVM_HEAP`: in a small container it could grow beyond its share, which with
records in Python only DataFrames make it do. Python cannot be told, so it gets what is left, and `shortage` says when that is less than its
processes take before a record has come. What processes take was measured (PSS, pipelined runner, levels 1 to 3, 100
records/s): `penstock worker` 73 MiB, an executor 65 besides its heap, a Python daemon 37 and 12 to 34 for
each level, a JobManager's Python 100.

Keys are Flink's where it has the thing
(https://nightlies.apache.org/flink/flink-docs-release-2.0/docs/deployment/memory/mem_setup/). As Flink's, the heap is one for all slots of a
TaskManager; Flink counts Python's memory as managed, here it is most of what there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.config import options
from penstock.common.configuration import Configuration

MIB = 2**20

FRAMEWORK = 112 * MIB
"""`penstock worker` and a Python daemon."""
LEAST_HEAP = 128 * MIB
"""With less, JVMs of Spark collect all the time; they begin with so much, and some 30 MiB of it are in use."""
LEAST_HEAP_OF_SLOT = 16 * MIB
"""Of each slot after the first: what waits at its exchanges."""
LEAST_JVM_HEAP = 480 * MIB
"""Spark takes 300 MiB of every heap for itself and refuses one below 450, of which the JVM does not show it all."""
DEFAULT_HEAP = 512 * MIB
"""Of an executor of one slot, where nothing says how much there is, and the most that a share gives: records are Python's."""
DEFAULT_HEAP_OF_SLOT = DEFAULT_HEAP - 300 * MIB
"""Of each slot after the first: as much as Spark leaves of the first one's."""
OVERHEAD_OF_SLOT = 16 * MIB
"""Of each slot after the first: threads and network buffers of its tasks."""
DEFAULT_DRIVER_HEAP = 640 * MIB
PYTHON_WORKER = 40 * MIB
"""Of each level of the job graph. The batched runner has one for all levels of a slot, and a daemon beside it."""
JOBMANAGER_PYTHON = 128 * MIB
_DRIVER_SHARE = 0.5
_ROUND = 64 * MIB
"""Sizes that are recommended are multiples of it."""


@dataclass(frozen=True)
class TaskManagerMemory:
    """Of a TaskManager with so many slots. What ends in `_of_slot` is there for each of them."""

    slots: int
    process: int | None
    """What the container may use; None: nobody has said."""
    heap: int
    overhead: int
    managed_of_slot: int | None
    """RocksDB's; None: not bounded as a whole (hashmap, or nobody has said how much there is)."""
    python_of_slot: int | None
    """What is left; below zero if there is not enough for the rest."""
    framework: int = FRAMEWORK

    def as_configuration(self) -> dict[str, int]:
        """`memoryConfiguration` of `GET /taskmanagers/:id`: Flink's names, for all slots together, and `python`."""
        managed = (self.managed_of_slot or 0) * self.slots
        found = {
            "frameworkHeap": self.framework,
            "taskHeap": self.heap,
            "managedMemory": managed,
            "jvmOverhead": self.overhead,
        }
        if self.process is not None and self.python_of_slot is not None:
            found |= {"python": max(0, self.python_of_slot) * self.slots, "totalProcessMemory": self.process}
        return found


@dataclass(frozen=True)
class JobManagerMemory:
    process: int | None
    heap: int
    overhead: int
    python: int | None
    """What is left; below zero if there is not enough for the rest."""


def task_manager_memory(conf: Configuration, slots: int | None = None) -> TaskManagerMemory:
    """
    Args:
        slots: of the TaskManager; None: as configured.

    >>> memory = task_manager_memory(Configuration({"taskmanager.memory.process.size": "2gb"}))
    >>> memory.heap // MIB, memory.python_of_slot // MIB
    (512, 1328)
    """
    slots = slots or conf.get(options.TASK_SLOTS)
    process = conf.get(options.TASKMANAGER_PROCESS_SIZE)
    overhead = conf.get(options.JVM_OVERHEAD) + (slots - 1) * OVERHEAD_OF_SLOT
    rocksdb = conf.get(options.STATE_BACKEND) == "rocksdb"
    given_heap, given_managed = conf.get(options.EXECUTOR_MEMORY_MB), conf.get(options.MANAGED_SIZE)
    fixed = conf.get(options.ROCKSDB_FIXED_PER_SLOT)
    managed = None
    if rocksdb and (fixed is not None or given_managed is not None):
        managed = fixed if fixed is not None else (given_managed or 0) // slots
    heap = DEFAULT_HEAP + (slots - 1) * DEFAULT_HEAP_OF_SLOT if given_heap is None else given_heap * MIB
    if process is None:
        return TaskManagerMemory(slots, None, max(_least_heap(slots), heap), overhead, managed, None)
    if given_heap is None:
        heap = min(heap, int((process - FRAMEWORK) * conf.get(options.HEAP_FRACTION)))
    heap = max(_least_heap(slots), heap // MIB * MIB)
    left = (process - FRAMEWORK - heap - overhead) // slots
    if rocksdb and managed is None:
        managed = max(0, int(left * conf.get(options.MANAGED_FRACTION)))
    return TaskManagerMemory(slots, process, heap, overhead, managed, left - (managed or 0))


def job_manager_memory(conf: Configuration) -> JobManagerMemory:
    """
    >>> job_manager_memory(Configuration({"jobmanager.memory.process.size": "1gb"})).heap // MIB
    400
    """
    process, given = conf.get(options.JOBMANAGER_PROCESS_SIZE), conf.get(options.JOBMANAGER_HEAP)
    overhead = conf.get(options.JVM_OVERHEAD)
    if process is None:
        return JobManagerMemory(None, max(LEAST_HEAP, given or DEFAULT_DRIVER_HEAP), overhead, None)
    share = min(DEFAULT_DRIVER_HEAP, int((process - JOBMANAGER_PYTHON - overhead) * _DRIVER_SHARE))
    heap = max(LEAST_HEAP, (given or share) // MIB * MIB)
    return JobManagerMemory(process, heap, overhead, process - heap - overhead)


def effective(conf: Configuration) -> dict[str, str]:
    """What processes are told, by the keys that would say the same."""
    worker, master = task_manager_memory(conf), job_manager_memory(conf)
    found = {
        options.EXECUTOR_MEMORY_MB.key: str(jvm_heap(worker.heap) // MIB),
        options.JOBMANAGER_HEAP.key: f"{jvm_heap(master.heap) // MIB}mb",
    }
    if worker.managed_of_slot is not None:
        found[options.MANAGED_SIZE.key] = f"{worker.managed_of_slot * worker.slots}b"
    return found


def jvm_heap(share: int) -> int:
    """The heap (`-Xmx`) of a JVM of Spark whose share of a container this is.

    >>> jvm_heap(128 * MIB) // MIB, jvm_heap(600 * MIB) // MIB
    (480, 600)
    """
    return max(LEAST_JVM_HEAP, share)


def least_task_manager(slots: int, levels: int = 3, overhead: int = 96 * MIB) -> int:
    """What a TaskManager takes as it idles: what to request for it where nobody says.

    >>> [least_task_manager(slots) // MIB for slots in (1, 2, 4)]
    [456, 608, 912]
    """
    jvm = _least_heap(slots) + overhead + (slots - 1) * OVERHEAD_OF_SLOT
    return FRAMEWORK + jvm + slots * _python_need(levels)


def least_job_manager(overhead: int = 96 * MIB) -> int:
    """
    >>> least_job_manager() // MIB
    352
    """
    return JOBMANAGER_PYTHON + LEAST_HEAP + overhead


@dataclass(frozen=True)
class Shortage:
    """A container that would be killed: in words, and what to do."""

    message: str
    remedy: str


def shortages(conf: Configuration, levels: int, state_of_slot: int = 0) -> list[Shortage]:
    """Containers whose limit is too small for the job; none where no limit is known.

    Args:
        levels: of the job graph.
        state_of_slot: bytes of state, as it lies in a checkpoint, of the slot with the most; objects in memory take more.
    """
    return [found for found in (_of_worker(conf, levels, state_of_slot), _of_master(conf)) if found is not None]


def _of_worker(conf: Configuration, levels: int, state_of_slot: int) -> Shortage | None:
    memory = task_manager_memory(conf)
    if memory.process is None or memory.python_of_slot is None:
        return None
    in_python = 0 if conf.get(options.STATE_BACKEND) == "rocksdb" else state_of_slot
    need = _python_need(levels) + in_python
    if memory.python_of_slot >= need:
        return None
    rocksdb = f"RocksDB {_mib(memory.managed_of_slot)}, " if memory.managed_of_slot else ""
    python = f"Python {_mib(need)} for {levels} level{'s' if levels > 1 else ''}"
    if in_python:
        python += f" of which {_mib(in_python)} are the state of the newest checkpoint"
    total = memory.framework + memory.heap + memory.overhead + memory.slots * ((memory.managed_of_slot or 0) + need)
    message = (
        f"a worker would be killed for memory: {memory.slots} slot{'s' if memory.slots > 1 else ''} need {_mib(total)} "
        f"({_mib(memory.framework)} for the worker itself, JVM heap {_mib(memory.heap)}, JVM overhead {_mib(memory.overhead)}, "
        f"and for each slot {rocksdb}{python}), and "
        f"{options.TASKMANAGER_PROCESS_SIZE.key} is {_mib(memory.process)}"
    )
    enough = _enough_for(conf, memory.process, memory.slots, need)
    fewer = next((n for n in range(memory.slots - 1, 0, -1) if _python_left(conf, memory.process, n) >= need), None)
    or_fewer = f", or lower {options.TASK_SLOTS.key} to {fewer}" if fewer else ""
    return Shortage(message, f"raise {options.TASKMANAGER_PROCESS_SIZE.key} to {_mib(enough)}{or_fewer}")


def _of_master(conf: Configuration) -> Shortage | None:
    memory = job_manager_memory(conf)
    if memory.process is None or memory.python is None or memory.python >= JOBMANAGER_PYTHON:
        return None
    total = memory.heap + memory.overhead + JOBMANAGER_PYTHON
    key = options.JOBMANAGER_PROCESS_SIZE.key
    return Shortage(
        f"the master would be killed for memory: it needs {_mib(total)} (JVM heap {_mib(memory.heap)}, JVM overhead "
        f"{_mib(memory.overhead)}, Python {_mib(JOBMANAGER_PYTHON)}), and {key} is {_mib(memory.process)}",
        f"raise {key} to {_mib(-(-total // _ROUND) * _ROUND)}",
    )


def _python_need(levels: int) -> int:
    return max(2, levels) * PYTHON_WORKER


def _least_heap(slots: int) -> int:
    return LEAST_HEAP + (slots - 1) * LEAST_HEAP_OF_SLOT


def _python_left(conf: Configuration, process: int, slots: int) -> int:
    """Python's part of a slot, had the container so much and so many slots."""
    tried = Configuration({**conf.to_dict(), options.TASKMANAGER_PROCESS_SIZE.key: f"{process}b"})
    return task_manager_memory(tried, slots).python_of_slot or 0


def _enough_for(conf: Configuration, process: int, slots: int, need: int) -> int:
    """The least size of a container, to `_ROUND`, in which Python has what it needs."""
    size = -(-process // _ROUND) * _ROUND
    while _python_left(conf, size, slots) < need:
        size += max(_ROUND, size // 64 // _ROUND * _ROUND)
    return size


def _mib(size: int) -> str:
    """As Kubernetes writes it; options read it, too."""
    return f"{round(size / MIB)}Mi"
