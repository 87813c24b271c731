"""The calls of a process to the SparkContext in the JVM of its cluster's driver.

The process that started the driver has a `SparkCluster`. Processes that share the driver have an `AttachedCluster`. Runners use either of
these objects.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.jobmanager.cluster.jvm import classes as jvm_package
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.slots import ExecutorInfo, Slot, slots_of
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.cluster.spark_sql import SparkSql
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill, TaskEnd

_MAX_TASKS = 4096
"""Maximum number of tasks of a stage, which has one task for each slot of its job."""


class Driver(msgspec.Struct):
    """The driver of a cluster, and how another process of the same user connects to it."""

    port: int
    """Port of Py4J's gateway, on the loopback interface."""
    secret: str
    host: str
    """Address at which the cluster's tasks reach processes on the driver's machine."""
    python: str
    """Interpreter of the workers."""
    local_dir: str


class Slots(Protocol):
    """Assignment of slots to jobs. `slot_pool.SlotPool` describes the methods."""

    def available(self, job: object, slots: Sequence[str], wanted: int = 0, priority: int = 0) -> list[str]: ...

    def place(
        self, job: object, count: int, slots: Sequence[str], machines: Mapping[str, str] | None = None
    ) -> list[str]: ...

    def release(self, job: object) -> None: ...


class Members(Protocol):
    """TaskManagers of the cluster. `members.registry.Registry` describes the methods."""

    def members(self) -> list[Member]: ...

    def killed_on(self, host: str) -> MemoryKill | None: ...

    def is_at(self, host: str) -> bool: ...


class SparkAccess(ABC):
    """Access to a started cluster. `load` must be called before the methods that call the JVM."""

    slots: Slots
    """Assignment of slots to jobs, by id (see `slots.Slot`)."""
    registry: Members
    """Registry of the TaskManagers."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.context: Any = None
        """The SparkContext. None means that the cluster is not started."""
        self._gateway: Any = None
        self._epochs: Any = None
        self._executors: Any = None
        self._manager: Any = None
        self._failures: Any = None
        self._readings: Any = None
        self.sql = SparkSql(self)
        """DataFrames on this cluster."""

    def load(self, gateway: Any) -> None:
        """Load Penstock's classes in the driver's JVM."""
        self._gateway = gateway
        self._epochs = jvm_package.load(gateway, "penstock.Epoch")
        self._executors = jvm_package.load(gateway, "penstock.Executors")
        self._manager = jvm_package.load(gateway, "penstock.SlotCluster")
        self._failures = jvm_package.load(gateway, "penstock.TaskFailures")
        self._readings = jvm_package.load(gateway, "penstock.Readings")

    @abstractmethod
    def executors(self) -> list[ExecutorInfo]:
        """Return the registered executors, by id."""

    @abstractmethod
    def workers(self) -> list[Worker]:
        """Return the connected TaskManagers, each with the slots that can take a task."""

    def readings(self) -> str:
        """Return the metrics of the driver's JVM, for `JvmReadings.parse`. An empty text means that the JVM does not run."""
        return "" if self.context is None else str(self._readings.text())

    def all_slots(self) -> dict[str, Slot]:
        """Return the slots of the registered executors, by id."""
        return slots_of(self.executors())

    def wait_for_slots(self, count: int, timeout_s: float) -> dict[str, Slot]:
        """Wait until `count` slots exist, at most `timeout_s` seconds. Return the existing slots."""
        deadline = time.monotonic() + timeout_s
        while True:
            slots = self.all_slots()
            if len(slots) >= count or time.monotonic() > deadline:
                return slots
            time.sleep(0.1)

    def run_epoch(
        self, commands: bytes, placement: list[Slot], functions: Any, *, job_id: str, pipelined: bool, group: str
    ) -> bytes:
        """Run an epoch of the batched runner, or an attempt of the pipelined runner, as one Spark job. See `jvm/Epoch.java`."""
        context = self.context._jsc.sc()
        locations = self._strings([slot.executor.location for slot in placement])
        slots = self._strings([slot.id for slot in placement])
        rows = self._epochs.run(context, bytearray(commands), locations, slots, functions, job_id, pipelined, group)
        return bytes(rows)

    def release_workers(self, job_id: str, locations: list[str]) -> None:
        """Allow executors to end the Python workers of the job. See `jvm/HeldWorkers.java`. The call does not wait."""
        self._epochs.release(self.context._jsc.sc(), self._strings(locations), job_id)

    def _strings(self, values: list[str]) -> Any:
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def new_function_array(self, functions: list[Any]) -> Any:
        array = self._gateway.new_array(self._gateway.jvm.org.apache.spark.api.python.PythonFunction, len(functions))
        for index, function in enumerate(functions):
            array[index] = function
        return array

    def running_tasks(self, group: str) -> list[tuple[int, int]]:
        """Return partition and stage (counted from 0 within its job) of the running tasks of this group's job."""
        tracker, store = self.context.statusTracker(), self.context._jsc.sc().statusStore()
        found = []
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            for level, stage_id in enumerate(sorted(job.stageIds) if job is not None else ()):
                tasks = store.taskList(stage_id, 0, _MAX_TASKS)
                for index in range(tasks.size()):
                    task = tasks.apply(index)
                    if task.status() == "RUNNING":
                        found.append((int(task.index()), level))
        return sorted(found)

    def failures(self, group: str) -> list[TaskEnd]:
        """Return the failures of the tasks of this group's jobs that Spark has reported so far."""
        return [TaskEnd.parse(lines) for lines in self._failures.of(group)]

    def cancel(self, group: str) -> None:
        self.context.cancelJobGroup(group)
