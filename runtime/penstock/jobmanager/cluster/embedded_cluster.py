"""A cluster in one JVM: the driver's JVM runs all tasks. The Python workers are separate processes.

`python job.py` runs on this cluster, except in these cases:

- The job uses DataFrames. Spark runs one DataFrame task on each core of an executor, and this cluster claims 1,024 cores.
- The job needs more than 64 slots.
- Its settings concern individual TaskManagers (`needs_processes`).
- Its settings contain `penstock.local-cluster: processes`.

A second JVM would take a third of a job's memory and most of its start time, only to isolate processes that end together anyway. A
Python worker that dies fails the attempt, as on every cluster. The loss of the driver's JVM always loses the JobManager of the job.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping

from penstock.common.config import options
from penstock.common.config.memory import MIB
from penstock.common.errors import NotEnoughSlots
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.executor.executor_process import state_folder
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.spark_cluster import EMBEDDED_MEMBER, SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.failover.crash import MemoryKill

MAX_SLOTS = 64
"""Maximum number of slots. The JVM runs at most 1,024 tasks at once (`jvm/SlotCluster.java`), enough for 64 slots and a job of 16 levels."""
_OF_EXECUTORS = "spark.executor."
_WATCH_S = 0.5
"""Interval of the checks for processes that the system killed because of memory, in seconds."""


def needs_processes(settings: Mapping[str, str]) -> bool:
    """Return whether settings require separate executors: slots per TaskManager, or resources of Spark's executors.

    >>> needs_processes({"parallelism.default": "2"}), needs_processes({"taskmanager.numberOfTaskSlots": "2"})
    (False, True)
    """
    return options.TASK_SLOTS.key in settings or any(key.startswith(_OF_EXECUTORS) for key in settings)


class EmbeddedCluster:
    """Cluster in one JVM. Start it with `start()`, add slots with `ensure_slots`, and stop it with `stop()`.

    Args:
        config: settings of the Spark side. The heap in these settings is the sum of the heaps of the driver and the
            executor.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._folder = OwnedFolder(tempfile.gettempdir(), "penstock-cluster-")
        config.embedded = True
        if not config.local_dir:
            config.local_dir = os.path.join(self._folder.path, "driver")
        self.spark = SparkCluster(config)
        self._ended = threading.Event()

    def start_jvm(self) -> None:
        """Start the JVM, and return while it is starting."""
        self.spark.start_jvm()

    def start(self) -> None:
        self.spark.start()
        threading.Thread(target=self._watch, args=(MemoryKills(),), name="penstock-workers", daemon=True).start()

    def _watch(self, kills: MemoryKills) -> None:
        while not self._ended.wait(_WATCH_S):
            if kills.new():
                self.spark.registry.has_killed(self.spark.config.host, MemoryKill(kills.limit))

    def ensure_slots(self, slots: int, timeout_s: float = 0.0, *, least_workers: int = 1) -> None:
        """Provide `slots` slots.

        Raises:
            NotEnoughSlots: one JVM cannot have that many slots.
        """
        if slots > MAX_SLOTS:
            raise NotEnoughSlots(
                f"{slots} slots exceed the limit of {MAX_SLOTS} slots in one JVM",
                remedy=f"set {options.TASK_SLOTS.key}. Each TaskManager then is a separate process",
            )
        spark = self.spark
        spark.embedded_slots = max(slots, spark.embedded_slots)
        heap = spark.config.driver_memory_mb * MIB
        [executor] = spark.executors()
        spark.registry.put(Member(EMBEDDED_MEMBER, executor.host, executor.slots, heap, executor.id, registered=True))

    def logs(self, member: str) -> LogFiles:
        """Return the logs of the TaskManager, which is the driver's JVM with its Python workers."""
        return self.spark.output.files if member == EMBEDDED_MEMBER else LogFiles()

    def readings(self, member: str) -> str:
        """Return the metrics that the JVM reports."""
        return self.spark.readings()

    def local_dir(self, member: str) -> str:
        """Return the directory for the local files of the slots."""
        return state_folder(self.spark.config.local_dir)

    @property
    def workers(self) -> dict[int, int]:
        """Return the process id of the executor, by the number of its TaskManager."""
        return {0: self.spark.driver_pid}

    def stop(self) -> None:
        self._ended.set()
        self.spark.stop()
        self._folder.remove()
