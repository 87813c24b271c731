"""A cluster that another process of this machine has started. The other process is the JobManager of a session, and
this process runs one program of the session.

Both processes call the same driver. The session assigns the slots, because they belong to the jobs of all programs.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.slots import ExecutorInfo
from penstock.jobmanager.cluster.spark_access import Driver, SparkAccess
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill


class ClusterOwner(Protocol):
    """Calls to the process that has started the cluster. This process chooses a number for each of its jobs, which
    identifies the job in these calls."""

    def executors(self) -> list[ExecutorInfo]: ...

    def workers(self) -> list[Worker]: ...

    def members(self) -> list[Member]: ...

    def killed_on(self, host: str) -> MemoryKill | None: ...

    def is_at(self, host: str) -> bool: ...

    def available(self, job: int, slots: Sequence[str], wanted: int, priority: int) -> list[str]: ...

    def place(self, job: int, count: int, slots: Sequence[str], machines: Mapping[str, str]) -> list[str]: ...

    def release(self, job: int) -> None: ...


class AttachedCluster(SparkAccess):
    """Access to the cluster of another process. `attach` connects to its driver, and `detach` leaves it running.

    Args:
        driver: the driver's connection data.
        owner: calls to the process that has started the cluster.
    """

    slots: _RemoteSlots

    def __init__(self, driver: Driver, owner: ClusterOwner) -> None:
        super().__init__(ClusterConfig(host=driver.host, python=driver.python, local_dir=driver.local_dir))
        self._driver, self._owner = driver, owner
        self.slots = _RemoteSlots(owner)
        self.registry = owner

    def attach(self) -> None:
        os.environ["PYSPARK_PYTHON"] = self._driver.python
        os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")
        os.environ["SPARK_LOCAL_DIRS"] = self._driver.local_dir
        from pyspark import SparkConf, SparkContext

        from penstock.jobmanager.cluster.jvm.driver import connect_to_driver

        gateway = connect_to_driver(self._driver.port, self._driver.secret)
        java_context = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
        # Set both attributes first, because the constructor of SparkConf looks for a JVM in them.
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        conf = SparkConf(_jconf=java_context.getConf())
        self.context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
        self.load(gateway)

    def number(self, job: object) -> int:
        """Return the number by which the owner of the cluster knows a job of this process."""
        return self.slots.number(job)

    def executors(self) -> list[ExecutorInfo]:
        return self._owner.executors()

    def workers(self) -> list[Worker]:
        return self._owner.workers()

    def detach(self) -> None:
        """Release this process's objects in the driver, and close the connection."""
        if self.context is None:
            return
        server = self.context._accumulatorServer
        server.server_shutdown = True
        gateway = self._gateway
        self.context = self._gateway = self._epochs = self._executors = None
        self._manager = self._failures = self._readings = None
        from pyspark import SparkContext

        SparkContext._active_spark_context = None
        gc.collect()
        SparkContext._gateway = SparkContext._jvm = None
        with suppress(Exception):  # the driver may have ended before
            release_objects(gateway._gateway_client)
            gateway.close()


def release_objects(client: Any) -> None:
    """Release all objects that this process has in the driver.

    Py4J releases an object some time after Python has freed it. Without this call, the driver would keep the objects that Python still has,
    or has freed just now, when the process ends.
    """
    from py4j.finalizer import ThreadSafeFinalizer

    prefix = f"{client.address}{client.port}"
    with ThreadSafeFinalizer.lock:
        held = [key.removeprefix(prefix) for key in ThreadSafeFinalizer.finalizers if key.startswith(f"{prefix}o")]
        ThreadSafeFinalizer.clear_finalizers(clear_all=True)
    freed = [task[1] for task in list(client.finalizer_deque) if isinstance(task, tuple)]
    for target_id in {*held, *freed}:
        client.garbage_collect_object(target_id, False)


class _RemoteSlots:
    """Slots that the owner of the cluster assigns."""

    def __init__(self, owner: ClusterOwner) -> None:
        self._owner = owner
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next = itertools.count()

    def number(self, job: object) -> int:
        """Return the number of a job of this process."""
        if job not in self._numbers:
            self._numbers[job] = next(self._next)
        return self._numbers[job]

    def available(self, job: object, slots: Sequence[str], wanted: int = 0, priority: int = 0) -> list[str]:
        return self._owner.available(self.number(job), slots, wanted, priority)

    def place(
        self, job: object, count: int, slots: Sequence[str], machines: Mapping[str, str] | None = None
    ) -> list[str]:
        return self._owner.place(self.number(job), count, slots, machines or {})

    def release(self, job: object) -> None:
        self._owner.release(self.number(job))
