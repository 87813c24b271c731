"""Limits of a session's programs: the settings that the cluster limits, and the memory of their processes.

A thread of the session reads the memory of each limited process ten times a second. A limit of the system (RLIMIT_AS) would also
count memory that is reserved and not used, and a cgroup is not available in most containers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from penstock.common.config import options
from penstock.common.config.memory import MIB
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob, MemoryLimitExceeded
from penstock.common.system.memory_use import used_with_children
from penstock.jobmanager.process.programs.messages import ProgramEnd
from penstock.jobmanager.process.programs.running_program import ProgramProcess

CHECK_S = 0.1
"""Time in seconds between two checks. A process can allocate about 200 MB in this time."""
LIMITS = (options.PROGRAM_MEMORY, options.PROGRAM_WORKER_MEMORY)
"""Options whose value in the cluster is the maximum for programs."""
logger = logging.getLogger(__name__)


def check_limits(cluster: Mapping[str, str], program: Mapping[str, str]) -> None:
    """Check that a program sets no limit above that of the cluster.

    Raises:
        InvalidJob: a limit is above that of the cluster, or is not a size.
    """
    given = Configuration(program)
    for option in LIMITS:
        most, wanted = Configuration(cluster).get(option), given.get(option)
        if most is not None and wanted is not None and wanted > most:
            raise InvalidJob(
                f"{option.key} is {program[option.key]}, but this cluster allows at most {cluster[option.key]}",
                remedy="lower the value, or leave it out",
            )


def memory_limit(cluster: Mapping[str, str], program: Mapping[str, str]) -> int | None:
    """Return the limit for the process of a program in bytes, or None."""
    return Configuration({**cluster, **program}).get(options.PROGRAM_MEMORY)


class MemoryGuard:
    """Watcher of the memory of processes. Thread-safe."""

    def __init__(self) -> None:
        self._watched: list[tuple[ProgramProcess, int, Callable[[int], object]]] = []
        self._lock = threading.Lock()
        self._is_running = False

    def watch(self, process: ProgramProcess, limit: int | None, kill: Callable[[int], object]) -> None:
        """Watch a process until `forget`. If it uses too much memory, set its `failure` and kill it.

        Args:
            limit: limit in bytes for the process and the processes that it starts. None means no limit.
            kill: function that kills a process by its id.
        """
        if limit is None:
            return
        with self._lock:
            self._watched.append((process, limit, kill))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="memory-guard", daemon=True).start()

    def forget(self, process: ProgramProcess) -> None:
        with self._lock:
            self._watched = [one for one in self._watched if one[0] is not process]

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(CHECK_S):
            with self._lock:
                if not self._watched:
                    self._is_running = False
                    return
                watched = self._watched
            for process, limit, kill in watched:
                used = used_with_children(process.pid)
                if used > limit and not process.exited.is_set():
                    self.forget(process)
                    process.failure = _exceeded(used, limit)
                    logger.warning("process %d is ended: %s", process.pid, process.failure.message)
                    kill(process.pid)


def _exceeded(used: int, limit: int) -> ProgramEnd:
    key = options.PROGRAM_MEMORY.key
    return ProgramEnd(
        MemoryLimitExceeded.code,
        f"the process of the program used {used // MIB} MiB of memory, above its limit of {limit // MIB} MiB ({key})",
        f"keep less data in the program, or raise {key}. Functions and state have the memory of the workers",
    )
