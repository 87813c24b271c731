"""A cluster of real processes on this machine: Master and driver here, worker processes beside it.

What `python job.py`, the demo and the tests run on. Workers that die are started again, as Kubernetes would do it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
import threading
import time

from penstock.common.errors import NotEnoughSlots
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.spark_cluster import ClusterConfig, SparkCluster
from penstock.jobmanager.cluster.spark_worker import start_worker


class LocalCluster:
    """Start with `start()`, grow with `ensure_slots`, end with `stop()`.

    Args:
        slots_per_worker: of every worker process; None: the first has as many as are asked for first, and so on.
        config: of the Spark side; None = defaults.
        restart_workers: start a worker again that has died.
    """

    def __init__(
        self, *, slots_per_worker: int | None = None, config: ClusterConfig | None = None, restart_workers: bool = True
    ) -> None:
        self._folder = OwnedFolder(tempfile.gettempdir(), "penstock-cluster-")
        self.directory = self._folder.path
        self.config = config or ClusterConfig()
        if not self.config.local_dir:
            self.config.local_dir = os.path.join(self.directory, "driver")
        self.slots_per_worker = slots_per_worker
        self.spark = SparkCluster(self.config)
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._sizes: dict[int, int] = {}
        """Slots by worker number, of those that are about to start, too."""
        self._to_start: list[int] = []
        self._changed = threading.Event()
        self._restart = restart_workers
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="penstock-workers", daemon=True)

    def start(self) -> None:
        self.spark.start()
        self._watcher.start()

    def add_worker(self, slots: int = 1) -> int:
        """Start one more worker process; returns its number."""
        with self._lock:
            number = len(self._sizes)
            self._sizes[number] = self.slots_per_worker or slots
            self._to_start.append(number)
        self._changed.set()
        while number in self._to_start:
            time.sleep(0.02)
        return number

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker process and everything under it."""
        os.killpg(self._workers[number].pid, signal.SIGKILL)

    def ensure_slots(self, slots: int, timeout_s: float = 120.0, *, least_workers: int = 1) -> None:
        """Start workers until there are that many slots, and wait for their executors.

        Raises:
            NotEnoughSlots: they did not come in time; names the workers' logs.
        """
        while (missing := slots - sum(self._sizes.values())) > 0 or len(self._sizes) < least_workers:
            self.add_worker(max(1, math.ceil(missing / max(1, least_workers - len(self._sizes)))))
        found = self.spark.wait_for_slots(sum(self._sizes.values()), timeout_s)
        if len(found) < slots:
            raise NotEnoughSlots(
                f"{len(found)} of {slots} slots came up within {timeout_s:.0f} s",
                remedy=f"look at the workers' logs in {self.directory}",
            )

    @property
    def workers(self) -> dict[int, int]:
        """Process id by worker number."""
        with self._lock:
            return {number: worker.pid for number, worker in self._workers.items()}

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        return start_worker(
            self.spark.master_url,
            slots=self._sizes[number],
            host=self.config.host,
            work_dir=os.path.join(self.directory, f"worker-{number}"),
            executor_memory_mb=self.config.executor_memory_mb,
            log=os.path.join(self.directory, f"worker-{number}.log"),
            credentials=self.spark.credentials,
        )

    def _watch(self) -> None:
        """Starts workers, also again. Always from this thread: the system ends them when it is gone."""
        while not self._stopping.is_set():
            self._changed.wait(0.25)
            self._changed.clear()
            with self._lock:
                for number in self._to_start:
                    self._workers[number] = self._spawn(number)
                self._to_start.clear()
                for number, worker in self._workers.items():
                    if self._restart and worker.poll() is not None and not self._stopping.is_set():
                        self._workers[number] = self._spawn(number)
        self._stopped.wait()

    def stop(self) -> None:
        self._stopping.set()
        self._changed.set()
        self.spark.stop()
        with self._lock:
            for worker in self._workers.values():
                _end(worker)
        self._stopped.set()
        if self._watcher.is_alive():
            self._watcher.join(2)
        self._folder.remove()


def _end(worker: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the whole group, SIGKILL after a moment: executors and Python workers are in the worker's session."""
    for sig, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0)):
        try:
            os.killpg(worker.pid, sig)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if worker.poll() is not None:
                break
            time.sleep(0.05)
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
