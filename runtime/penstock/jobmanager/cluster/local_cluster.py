"""A cluster of processes on this machine: the driver, and one executor process for each TaskManager.

`python job.py`, the demo and the tests use it. The JobManager starts the executors itself, because a TaskManager on this cluster has no
process except its executor. The JobManager restarts an executor that dies, as Kubernetes would restart a pod. If the executor never
registered with the driver, the JobManager first pauses. The pause doubles each time.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.config.memory import MIB
from penstock.common.errors import NotEnoughSlots
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.executor.console import Console
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import kill_session, start_executor, state_folder
from penstock.jobmanager.cluster.executor.jvm_readings import request_readings
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.executor.start_backoff import StartBackoff
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.taskmanager.local_state.files import LocalFilesSweeper

WATCH_S = 0.25
"""Interval of process checks, in seconds."""
CHECK_INTERVAL_S = 2.0
"""Interval of requests to the driver for its executors, in seconds."""
WAIT_S = 0.5
"""Interval at which a caller that waits for slots checks whether waiting is hopeless, in seconds."""

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    """TaskManager: the process of its executor, and its working directory."""

    process: subprocess.Popen[bytes]
    folder: OwnedFolder
    member: str


class LocalCluster:
    """Cluster of processes. Start it with `start()`, add slots with `ensure_slots`, and stop it with `stop()`.

    Args:
        slots_per_worker: number of slots of every TaskManager. None means that each new TaskManager gets the number of missing slots.
        config: settings of the Spark side. None means the defaults.
        restart_workers: whether an executor that died is restarted.
        heap_mb: function from a number of slots to the heap of an executor. None means the heap of the config.
    """

    def __init__(
        self,
        *,
        slots_per_worker: int | None = None,
        config: ClusterConfig | None = None,
        restart_workers: bool = True,
        heap_mb: Callable[[int], int] | None = None,
    ) -> None:
        self._folder = OwnedFolder(tempfile.gettempdir(), "penstock-cluster-")
        self.directory = self._folder.path
        self.state_dir = state_folder(self.directory)
        """State directory of all TaskManagers. They share a disk, so a job that moves to another TaskManager's slot finds its local copies.
        """
        self.config = config or ClusterConfig()
        if not self.config.local_dir:
            self.config.local_dir = os.path.join(self.directory, "driver")
        self.slots_per_worker = slots_per_worker
        self.spark = SparkCluster(self.config)
        self._heap_mb = heap_mb or (lambda slots: self.config.executor_memory_mb)
        self._workers: dict[int, _Worker] = {}
        self._sizes: dict[int, int] = {}
        """Number of slots by number of the TaskManager, including TaskManagers that are being started."""
        self._output: dict[str, ExecutorOutput] = {}
        """Output of executors, by TaskManager."""
        self._to_start: list[int] = []
        self._backoffs: dict[int, StartBackoff] = {}
        self._changed = threading.Event()
        self._restart = restart_workers
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="penstock-workers", daemon=True)
        self._sweeper = LocalFilesSweeper([self.state_dir])

    def start(self) -> None:
        self.spark.start()
        self._watcher.start()
        self._sweeper.start()

    def add_worker(self, slots: int = 1) -> int:
        """Start another TaskManager and return its number."""
        with self._lock:
            number = len(self._sizes)
            self._sizes[number] = self.slots_per_worker or slots
            self._backoffs[number] = StartBackoff()
            self._to_start.append(number)
        self._changed.set()
        while number in self._to_start and self._watcher.is_alive() and not self._backoffs[number].reason:
            time.sleep(0.02)
        return number

    def kill_worker(self, number: int) -> None:
        """SIGKILL an executor and all its child processes."""
        os.killpg(self._workers[number].process.pid, signal.SIGKILL)

    def ensure_slots(self, slots: int, timeout_s: float = 120.0, *, least_workers: int = 1) -> None:
        """Start TaskManagers until the cluster has that many slots, and wait for their executors.

        Raises:
            NotEnoughSlots: the slots did not appear in time, or executors do not start. The error names the workers' logs.
        """
        with self._lock:  # a new request allows three more attempts
            for backoff in self._backoffs.values():
                backoff.release()
        while (missing := slots - sum(self._sizes.values())) > 0 or len(self._sizes) < least_workers:
            self.add_worker(max(1, math.ceil(missing / max(1, least_workers - len(self._sizes)))))
        wanted, deadline = sum(self._sizes.values()), time.monotonic() + timeout_s
        while True:
            patience = max(0.0, deadline - time.monotonic())
            found = self.spark.wait_for_slots(wanted, min(WAIT_S, patience))
            reason = self._hopeless_reason()
            if len(found) >= wanted or reason or patience <= WAIT_S:
                break
        if len(found) < slots:
            raise NotEnoughSlots(
                f"{len(found)} of {slots} slots came up{f': {reason}' if reason else f' within {timeout_s:.0f} s'}",
                remedy=f"the logs of the workers are in {self.directory}",
            )

    def _hopeless_reason(self) -> str:
        """Return why an executor repeatedly fails to start, or an empty string if no executor does."""
        with self._lock:
            return next((backoff.reason for backoff in self._backoffs.values() if backoff.reason), "")

    @property
    def workers(self) -> dict[int, int]:
        """Return the process id of each executor, by the number of its TaskManager."""
        with self._lock:
            return {number: worker.process.pid for number, worker in self._workers.items()}

    def logs(self, member: str) -> LogFiles:
        """Return the logs of a TaskManager."""
        output = self._output.get(member)
        return LogFiles() if output is None else output.files

    def readings(self, member: str) -> str:
        """Return the metrics that the executor of a TaskManager reports."""
        with self._lock:
            pid = next((one.process.pid for one in self._workers.values() if one.member == member), 0)
        return request_readings(pid) if pid else ""

    def local_dir(self, member: str) -> str:
        """Return the directory for the local files of a TaskManager's slots."""
        return state_folder(self._work_dir(member))

    def _work_dir(self, member: str) -> str:
        return os.path.join(self.directory, member)

    def _spawn(self, number: int) -> None:
        """Start an executor in place of the current executor."""
        before = self._workers.pop(number, None)
        if before is not None:
            _kill(before)
        slots, launch = self._sizes[number], self.spark.launch()
        heap_mb, host = self._heap_mb(slots), self.config.host
        member = f"worker-{number}"
        process, folder = start_executor(
            launch,
            slots=slots,
            host=host,
            work_dir=self._work_dir(member),
            heap_mb=heap_mb,
            credentials=self.spark.credentials,
            state_dir=self.state_dir,
        )
        # Record the executor first. If a later step fails, the next attempt then ends this executor.
        self._workers[number] = _Worker(process, folder, member)
        assert process.stdout is not None
        output = self._output.setdefault(
            member, ExecutorOutput(self.directory, member, self.config.log, self.config.redaction)
        )
        output.console = Console()
        copy_output(process.stdout, "", output.take)
        self.spark.registry.put(
            Member(member, host, slots, heap_mb * MIB, launch.executor_id, last_heartbeat=_now_ms())
        )

    def _watch(self) -> None:
        """Start and restart executors. Only this thread may start executors, because the system kills an executor when the thread that
        started it ends.
        """
        looked, kills = 0.0, MemoryKills()
        while not self._stopping.is_set():
            self._changed.wait(WATCH_S)
            self._changed.clear()
            if kills.new():
                self.spark.registry.has_killed(self.config.host, MemoryKill(kills.limit))
            lost: set[str] = set()
            if time.monotonic() - looked > CHECK_INTERVAL_S:
                lost = self._removed_task_managers()
                looked = time.monotonic()
            with self._lock:
                self._schedule_restarts(lost)
                self._start_due()
        self._stopped.wait()

    def _schedule_restarts(self, given_up: set[str]) -> None:
        """Schedule a restart of executors that have ended, or that the driver has removed."""
        for number, worker in self._workers.items():
            backoff, member = self._backoffs[number], self.spark.registry.get(worker.member)
            was_registered = member is not None and member.registered
            if was_registered:
                backoff.release()
            code = worker.process.poll()
            if number in self._to_start or not self._restart or (code is None and worker.member not in given_up):
                continue
            if code is not None and not was_registered:
                self._record_failed_start(
                    number,
                    f"the executor of {worker.member} ended with code {code} before it was registered with the driver",
                )
            self._to_start.append(number)

    def _start_due(self) -> None:
        """Start executors whose pause has ended. Retry after a failure: an exception would end this thread, and with it all executors."""
        for number in list(self._to_start):
            if self._stopping.is_set() or not self._backoffs[number].may_start(time.monotonic()):
                continue
            try:
                self._spawn(number)
            except Exception as error:
                self._record_failed_start(number, f"the executor of worker-{number} cannot be started: {error}")
            else:
                self._to_start.remove(number)

    def _record_failed_start(self, number: int, reason: str) -> None:
        log.warning("%s", reason)
        self._backoffs[number].record_failure(reason, time.monotonic())

    def _removed_task_managers(self) -> set[str]:
        """Return the TaskManagers whose executor the driver has removed, even if its process lives. Refresh the heartbeat of live
        processes.
        """
        try:
            _, lost = self.spark.executor_changes()
        except Exception as error:  # the driver ends or has ended, so the job fails anyway
            if not self._stopping.is_set():
                log.warning("the driver does not report its executors: %s", error)
            return set()
        now_ms = _now_ms()
        with self._lock:
            for worker in self._workers.values():
                if worker.process.poll() is None:
                    self.spark.registry.record_heartbeat(worker.member, now_ms)
        return {member.id for member in lost}

    def stop(self) -> None:
        self._stopping.set()
        self._changed.set()
        self.spark.stop()
        with self._lock:
            for worker in self._workers.values():
                _end(worker.process)
                worker.folder.remove()
        self._stopped.set()
        if self._watcher.is_alive():
            self._watcher.join(2)
        self._sweeper.stop()
        self._folder.remove()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _kill(worker: _Worker) -> None:
    """Kill the remaining processes. Python workers are in the executor's session."""
    _signal_group(worker.process, signal.SIGKILL)
    worker.process.wait()
    kill_session(worker.process.pid)
    worker.folder.remove()


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the whole group, then SIGKILL after a pause, then SIGKILL to the rest of its session: the Python workers."""
    for sig, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0)):
        if not _signal_group(worker, sig):
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if worker.poll() is not None:
                break
            time.sleep(0.05)
    _signal_group(worker, signal.SIGKILL)
    kill_session(worker.pid)


def _signal_group(worker: subprocess.Popen[bytes], sig: signal.Signals) -> bool:
    """Send a signal to the process group. Return False if no process is left."""
    try:
        os.killpg(worker.pid, sig)
    except ProcessLookupError:
        return False
    return True
