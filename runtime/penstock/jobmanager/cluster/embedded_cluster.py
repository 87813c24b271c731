"""A cluster in one JVM: the driver's, in which all tasks run, too. Their Python workers are processes of their own.

What `python job.py` runs on, unless it has DataFrames, whose tasks Spark runs as many of at once as an executor has cores, or its settings
speak of TaskManagers as such (`needs_processes`) or want `penstock.local-cluster: processes`: a second JVM would take a third of a
job's memory and most of its start, to keep apart what ends together anyway. A Python worker that dies is an attempt that
fails over, as everywhere; with the driver's JVM a job's JobManager has always been lost.
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

MOST_SLOTS = 64
"""As many as the JVM runs tasks of (`jvm/SlotCluster.java`), each of as many levels as there may be."""
_OF_EXECUTORS = "spark.executor."
_WATCH_S = 0.5
"""How often is looked whether the system has killed something for memory."""


def needs_processes(settings: Mapping[str, str]) -> bool:
    """Whether settings want executors of their own: slots for each TaskManager, or what Spark's executors are to have.

    >>> needs_processes({"parallelism.default": "2"}), needs_processes({"taskmanager.numberOfTaskSlots": "2"})
    (False, True)
    """
    return options.TASK_SLOTS.key in settings or any(key.startswith(_OF_EXECUTORS) for key in settings)


class EmbeddedCluster:
    """Start with `start()`, grow with `ensure_slots`, end with `stop()`.

    Args:
        config: of the Spark side; its heap is the driver's and the executor's together.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._folder = OwnedFolder(tempfile.gettempdir(), "penstock-cluster-")
        config.embedded = True
        if not config.local_dir:
            config.local_dir = os.path.join(self._folder.path, "driver")
        self.spark = SparkCluster(config)
        self._ended = threading.Event()

    def start(self) -> None:
        self.spark.start()
        threading.Thread(target=self._watch, args=(MemoryKills(),), name="penstock-workers", daemon=True).start()

    def _watch(self, kills: MemoryKills) -> None:
        while not self._ended.wait(_WATCH_S):
            if kills.new():
                self.spark.registry.has_killed(self.spark.config.host, MemoryKill(kills.limit))

    def ensure_slots(self, slots: int, timeout_s: float = 0.0, *, least_workers: int = 1) -> None:
        """There are that many from now on.

        Raises:
            NotEnoughSlots: more than one JVM can have.
        """
        if slots > MOST_SLOTS:
            raise NotEnoughSlots(
                f"{slots} slots are more than the {MOST_SLOTS} of one JVM",
                remedy=f"set {options.TASK_SLOTS.key}: then every TaskManager is a process of its own",
            )
        spark = self.spark
        spark.embedded_slots = max(slots, spark.embedded_slots)
        heap = spark.config.driver_memory_mb * MIB
        [executor] = spark.executors()
        spark.registry.put(Member(EMBEDDED_MEMBER, executor.host, executor.slots, heap, executor.id, registered=True))

    def logs(self, member: str) -> LogFiles:
        """Of the TaskManager, which is the driver's JVM with its Python workers."""
        return self.spark.output.files if member == EMBEDDED_MEMBER else LogFiles()

    def readings(self, member: str) -> str:
        """What its JVM says of itself."""
        return self.spark.readings()

    def local_dir(self, member: str) -> str:
        """Where its slots keep what they have on disk."""
        return state_folder(self.spark.config.local_dir)

    @property
    def workers(self) -> dict[int, int]:
        """Process id of the executor by number."""
        return {0: self.spark.driver_pid}

    def stop(self) -> None:
        self._ended.set()
        self.spark.stop()
        self._folder.remove()
