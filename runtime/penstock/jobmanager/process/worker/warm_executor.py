"""When a worker keeps a warm executor for a master on standby (`penstock.worker.warm-executor`).

A warm executor is a JVM with its Python daemon that is registered with the driver of a standby, and runs no tasks. If the standby becomes the
leader, its tasks start at once. A worker has at most one warm executor.

The mode `auto` reserves no memory for it. So it starts only if memory is left, and ends if memory becomes scarce. The executor of the leader
is never affected.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.common.config import options
from penstock.common.config.memory import WARM_EXECUTOR
from penstock.common.configuration import Configuration
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills

DELAY_S = 3.0
"""Time in seconds after the registration of the leader's executor. The start of a JVM must not slow down the restore of the job."""
PAUSE_S = 60.0
"""Time in seconds without a warm executor after it was given up."""
_START_SHARE = 0.85
"""Share of the memory that may be in use together with a warm executor when it starts."""
_END_SHARE = 0.92
"""Share of the memory that may be in use while a warm executor exists."""


def may_start(used: int, limit: int) -> bool:
    """Return whether memory is left for a warm executor. The sizes are in bytes.

    >>> gib = 2**30
    >>> may_start(1 * gib, 2 * gib), may_start(int(1.6 * gib), 2 * gib), may_start(0, 0)
    (True, False, False)
    """
    return used + WARM_EXECUTOR <= limit * _START_SHARE


def must_end(used: int, limit: int) -> bool:
    """Return whether a warm executor must free its memory.

    >>> must_end(90, 100), must_end(93, 100)
    (False, True)
    """
    return used > limit * _END_SHARE


class WarmExecutorPolicy:
    """Decision of one worker.

    Args:
        mode: `true`, `false` or `auto`.
        memory: function that returns the memory in use and the memory limit of this container or machine, in bytes.
    """

    def __init__(self, mode: str, memory: Callable[[], tuple[int, int]]) -> None:
        self._mode = mode
        self._memory = memory
        self._paused_until = 0.0

    @classmethod
    def of(cls, settings: Configuration, container: MemoryKills) -> WarmExecutorPolicy:
        return cls(settings.get(options.WARM_EXECUTOR), lambda: _memory_of(container))

    def may_start(self, running_since: float | None) -> bool:
        """Return whether to ask a standby for a warm executor.

        Args:
            running_since: time at which the leader's executor was registered. None means that it is not.
        """
        now = time.monotonic()
        if self._mode == "false" or running_since is None or now - running_since < DELAY_S or now < self._paused_until:
            return False
        return self._mode == "true" or may_start(*self._memory())

    def must_end(self) -> bool:
        """Return whether the warm executor must end, because memory is scarce."""
        return self._mode == "auto" and must_end(*self._memory())

    def pause(self) -> None:
        """Ask for no warm executor for a while."""
        self._paused_until = time.monotonic() + PAUSE_S


def _memory_of(container: MemoryKills) -> tuple[int, int]:
    """Return the memory in use and the limit. Without a limit of the container, the limit is the memory of the machine."""
    limit = container.limit
    return (container.used, limit) if limit else machine_memory()


def machine_memory(meminfo: str = "/proc/meminfo") -> tuple[int, int]:
    """Return the memory in use and the memory of this machine in bytes. Both are 0 if they are unknown."""
    try:
        lines = Path(meminfo).read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
        return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return 0, 0
