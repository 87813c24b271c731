"""CPU time and memory of a process and all of its children over time (Linux: read from `/proc`).

CPU time is read often and interpolated between two readings, which gives the cost between any two moments. The list
of processes is expensive, so it is read less often. The CPU time of a process that ended still counts.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

CPU_PERIOD_S = 0.05
TREE_PERIOD_S = 0.5
_TICK = os.sysconf("SC_CLK_TCK")
_ROLES = {
    b"CoarseGrainedExecutorBackend": "executor",
    b"SparkSubmit": "driver",
    b"python_daemon": "python",
    b"benchmarks/programs": "program",
}


class Status(NamedTuple):
    """The program, parent, user and system seconds of a process, and its start in clock ticks, which identifies the process."""

    program: str
    parent: int
    cpu_s: float
    started: int


def status(pid: int) -> Status | None:
    """Return the status of a process, or None if it is gone."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return Status(head.partition("(")[2], int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICK, int(fields[19]))


def machine_cpu_s() -> float:
    """Return the CPU seconds of all processes of the machine since its start."""
    user, nice, system, _, _, interrupts, soft_interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / _TICK


def descendants(root: int) -> list[int]:
    """Return the process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := status(int(entry))) is not None:
            children.setdefault(found.parent, []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def is_driver(pid: int) -> bool:
    """Return whether a process is Spark's driver, the JVM of a JobManager."""
    try:
        return b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def role(pid: int) -> str:
    """Return the role of a cluster's process: program, driver, executor, python (daemons and Python workers), other."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "other"
    for mark, name in _ROLES.items():
        if mark in command:
            return name
    return "other"


def memory(pid: int) -> int:
    """Return the proportional share of memory (PSS) of a process in bytes, or 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class ProcessTree(threading.Thread):
    """A thread that samples the processes until `stop()`.

    Args:
        root: process id.
    """

    def __init__(self, root: int) -> None:
        super().__init__(name="process-tree", daemon=True)
        self._root = root
        self._used: dict[tuple[int, int], float] = {}
        self._jvms: set[tuple[int, int]] = set()
        self._jvm_cpu: list[float] = []
        self._machine_cpu: list[float] = []
        self._alive = {root}
        self._times: list[float] = []
        self._cpu: list[float] = []
        self.memory: list[tuple[float, int]] = []
        """Moment (s since the epoch) and bytes of all processes, every half second."""
        self.coordinator_memory: list[int] = []
        """The bytes of the program's process and its drivers alone."""
        self.by_process: dict[str, list[tuple[float, int, float]]] = {}
        """The moment, bytes and used CPU seconds of every process, by "role pid"."""
        self._ended = threading.Event()

    def run(self) -> None:
        next_tree = 0.0
        names: dict[int, str] = {}
        while not self._ended.is_set():
            now = time.time()
            if now >= next_tree:
                self._alive.update(descendants(self._root))
                sizes = {pid: memory(pid) for pid in self._alive}
                self.memory.append((now, sum(sizes.values())))
                for pid, size in sizes.items():
                    if pid not in names:
                        names[pid] = f"{role(pid)} {pid}"
                    used = status(pid)
                    if used is not None:
                        self.by_process.setdefault(names[pid], []).append((now, size, used.cpu_s))
                self.coordinator_memory.append(
                    sum(size for pid, size in sizes.items() if pid == self._root or is_driver(pid))
                )
                next_tree = now + TREE_PERIOD_S
            self._sample()
            self._ended.wait(CPU_PERIOD_S)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    @property
    def peak_bytes(self) -> int:
        return max((size for _, size in self.memory), default=0)

    def cpu_between(self, begin: float, end: float) -> float:
        """Return the CPU seconds used between two moments (s since the epoch)."""
        return self._at(end, self._cpu) - self._at(begin, self._cpu)

    def jvm_cpu_between(self, begin: float, end: float) -> float:
        """Return the CPU seconds that Java processes used between two moments."""
        return self._at(end, self._jvm_cpu) - self._at(begin, self._jvm_cpu)

    def others_between(self, begin: float, end: float) -> float:
        """Return the CPU seconds that other processes of the machine used between two moments."""
        everything = self._at(end, self._machine_cpu) - self._at(begin, self._machine_cpu)
        return max(0.0, everything - self.cpu_between(begin, end))

    def _sample(self) -> None:
        for pid in list(self._alive):
            found = status(pid)
            if found is None:
                self._alive.discard(pid)
            else:
                self._used[pid, found.started] = found.cpu_s
                if found.program == "java":
                    self._jvms.add((pid, found.started))
        self._times.append(time.time())
        self._machine_cpu.append(machine_cpu_s())
        self._cpu.append(sum(self._used.values()))
        self._jvm_cpu.append(sum(self._used[process] for process in self._jvms))

    def _at(self, moment: float, cpu: list[float]) -> float:
        at = bisect_right(self._times, moment)
        if at == 0:
            return 0.0
        if at == len(self._times):
            return cpu[-1]
        before, after = self._times[at - 1], self._times[at]
        share = (moment - before) / (after - before)
        return cpu[at - 1] + share * (cpu[at] - cpu[at - 1])
