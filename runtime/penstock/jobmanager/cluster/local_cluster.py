"""A cluster of real processes on this machine: the driver and executors beside it, each a TaskManager's.

What `python job.py`, the demo and the tests run on. The JobManager starts executors itself: nothing else is needed of a TaskManager
here. One that dies is started again, as Kubernetes would do it; one that the driver never had, after a pause that doubles.
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
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import kill_session, start_executor, state_folder
from penstock.jobmanager.cluster.executor.jvm_readings import ask_executor
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.executor.start_brake import StartBrake
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.taskmanager.local_state.files import LocalFilesSweeper

WATCH_S = 0.25
"""How often processes are looked after."""
LOOK_S = 2.0
"""How often the driver is asked which executors it has."""
WAIT_S = 0.5
"""How often who waits for slots looks whether there is no hope."""

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    """A TaskManager: its executor's process, and where that works."""

    process: subprocess.Popen[bytes]
    folder: OwnedFolder
    member: str


class LocalCluster:
    """Start with `start()`, grow with `ensure_slots`, end with `stop()`.

    Args:
        slots_per_worker: of every TaskManager; None: the first has as many as are asked for first, and so on.
        config: of the Spark side; None = defaults.
        restart_workers: start an executor again that has died.
        heap_mb: of an executor of so many slots; None: the config's.
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
        """Of all TaskManagers: they are on one disk, so a job that gets a slot of another one finds its local copies there."""
        self.config = config or ClusterConfig()
        if not self.config.local_dir:
            self.config.local_dir = os.path.join(self.directory, "driver")
        self.slots_per_worker = slots_per_worker
        self.spark = SparkCluster(self.config)
        self._heap_mb = heap_mb or (lambda slots: self.config.executor_memory_mb)
        self._workers: dict[int, _Worker] = {}
        self._sizes: dict[int, int] = {}
        """Slots by number, of those that are about to start, too."""
        self._output: dict[str, ExecutorOutput] = {}
        """What executors wrote, by TaskManager."""
        self._to_start: list[int] = []
        self._brakes: dict[int, StartBrake] = {}
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
        """Start one more TaskManager; returns its number."""
        with self._lock:
            number = len(self._sizes)
            self._sizes[number] = self.slots_per_worker or slots
            self._brakes[number] = StartBrake()
            self._to_start.append(number)
        self._changed.set()
        while number in self._to_start and self._watcher.is_alive() and not self._brakes[number].reason:
            time.sleep(0.02)
        return number

    def kill_worker(self, number: int) -> None:
        """SIGKILL an executor and everything under it."""
        os.killpg(self._workers[number].process.pid, signal.SIGKILL)

    def ensure_slots(self, slots: int, timeout_s: float = 120.0, *, least_workers: int = 1) -> None:
        """Start TaskManagers until there are that many slots, and wait for their executors.

        Raises:
            NotEnoughSlots: they did not come in time, or executors do not start; names the workers' logs.
        """
        with self._lock:  # who asks anew has three attempts again
            for brake in self._brakes.values():
                brake.release()
        while (missing := slots - sum(self._sizes.values())) > 0 or len(self._sizes) < least_workers:
            self.add_worker(max(1, math.ceil(missing / max(1, least_workers - len(self._sizes)))))
        wanted, deadline = sum(self._sizes.values()), time.monotonic() + timeout_s
        while True:
            patience = max(0.0, deadline - time.monotonic())
            found = self.spark.wait_for_slots(wanted, min(WAIT_S, patience))
            why = self._why_hopeless()
            if len(found) >= wanted or why or patience <= WAIT_S:
                break
        if len(found) < slots:
            raise NotEnoughSlots(
                f"{len(found)} of {slots} slots came up{f': {why}' if why else f' within {timeout_s:.0f} s'}",
                remedy=f"look at the workers' logs in {self.directory}",
            )

    def _why_hopeless(self) -> str:
        """Why some executor does not start, again and again; empty: all do."""
        with self._lock:
            return next((brake.reason for brake in self._brakes.values() if brake.reason), "")

    @property
    def workers(self) -> dict[int, int]:
        """Process id of the executor by number."""
        with self._lock:
            return {number: worker.process.pid for number, worker in self._workers.items()}

    def logs(self, member: str) -> LogFiles:
        """Of a TaskManager."""
        output = self._output.get(member)
        return LogFiles() if output is None else output.files

    def readings(self, member: str) -> str:
        """What the executor of a TaskManager says of itself."""
        with self._lock:
            pid = next((one.process.pid for one in self._workers.values() if one.member == member), 0)
        return ask_executor(pid) if pid else ""

    def local_dir(self, member: str) -> str:
        """Where a TaskManager keeps what its slots have on disk."""
        return state_folder(self._work_dir(member))

    def _work_dir(self, member: str) -> str:
        return os.path.join(self.directory, member)

    def _spawn(self, number: int) -> None:
        """Start its executor, in the place of the one that it has."""
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
        # First: whatever fails below, the next attempt ends this one.
        self._workers[number] = _Worker(process, folder, member)
        assert process.stdout is not None
        output = self._output.setdefault(
            member, ExecutorOutput(self.directory, member, self.config.log, self.config.redaction)
        )
        copy_output(process.stdout, "", output.take)
        self.spark.registry.put(
            Member(member, host, slots, heap_mb * MIB, launch.executor_id, last_heartbeat=_now_ms())
        )

    def _watch(self) -> None:
        """Starts executors, also again. Always from this thread: the system ends them when it is gone."""
        looked, kills = 0.0, MemoryKills()
        while not self._stopping.is_set():
            self._changed.wait(WATCH_S)
            self._changed.clear()
            if kills.new():
                self.spark.registry.has_killed(self.config.host, MemoryKill(kills.limit))
            lost: set[str] = set()
            if time.monotonic() - looked > LOOK_S:
                lost = self._look()
                looked = time.monotonic()
            with self._lock:
                self._note_lost(lost)
                self._start_some()
        self._stopped.wait()

    def _note_lost(self, given_up: set[str]) -> None:
        """Have those started again that have ended, or that the driver has given up."""
        for number, worker in self._workers.items():
            brake, member = self._brakes[number], self.spark.registry.get(worker.member)
            was_there = member is not None and member.registered
            if was_there:
                brake.release()
            code = worker.process.poll()
            if number in self._to_start or not self._restart or (code is None and worker.member not in given_up):
                continue
            if code is not None and not was_there:
                self._miss(number, f"the executor of {worker.member} ended with code {code} before the driver had it")
            self._to_start.append(number)

    def _start_some(self) -> None:
        """Those whose time has come. What fails is tried again: with this thread all other executors would end."""
        for number in list(self._to_start):
            if self._stopping.is_set() or not self._brakes[number].is_free(time.monotonic()):
                continue
            try:
                self._spawn(number)
            except Exception as error:
                self._miss(number, f"the executor of worker-{number} cannot be started: {error}")
            else:
                self._to_start.remove(number)

    def _miss(self, number: int, why: str) -> None:
        log.warning("%s", why)
        self._brakes[number].missed(why, time.monotonic())

    def _look(self) -> set[str]:
        """TaskManagers whose executor the driver has given up, though it may live; the others are well."""
        try:
            _, lost = self.spark.look()
        except Exception as error:  # it ends, or has: then the job fails by itself
            if not self._stopping.is_set():
                log.warning("the driver does not tell of its executors: %s", error)
            return set()
        now_ms = _now_ms()
        with self._lock:
            for worker in self._workers.values():
                if worker.process.poll() is None:
                    self.spark.registry.heard_of(worker.member, now_ms)
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
    """What is left of it: Python workers are in the executor's session."""
    _signal_group(worker.process, signal.SIGKILL)
    worker.process.wait()
    kill_session(worker.process.pid)
    worker.folder.remove()


def _end(worker: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the whole group, SIGKILL after a moment, then to the rest of its session: Python workers."""
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
    """False: nobody is there any more."""
    try:
        os.killpg(worker.pid, sig)
    except ProcessLookupError:
        return False
    return True
