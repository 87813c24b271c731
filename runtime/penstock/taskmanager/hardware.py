"""The hardware of this process's machine, or the container's share of it."""

from __future__ import annotations

import math
import os
import time
from functools import cache
from pathlib import Path

import msgspec

_REFRESH_S = 1.0


class Hardware(msgspec.Struct, frozen=True, array_like=True):
    """Number of cores, and memory in bytes; 0 if unknown. `memory_free` is available without evicting anything."""

    cpu_cores: int = 0
    memory: int = 0
    memory_free: int = 0


class Machine:
    """A reader of the kernel's files.

    Args:
        root: folder that contains `/proc` and `/sys`.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self._proc = Path(root) / "proc"
        self._cgroup = Path(root) / "sys" / "fs" / "cgroup"
        self._read_at = -math.inf
        self._known = Hardware()

    def hardware(self) -> Hardware:
        """Return the hardware. The values are at most one second old."""
        now = time.monotonic()
        if now - self._read_at >= _REFRESH_S:
            self._read_at = now
            self._known = self._read()
        return self._known

    def _read(self) -> Hardware:
        info = _table(self._proc / "meminfo")
        memory, free = info.get("MemTotal:", 0) * 1024, info.get("MemAvailable:", 0) * 1024
        limit = _number(self._cgroup / "memory.max")
        if limit is not None and limit < memory:
            stat = _table(self._cgroup / "memory.stat")
            used = (_number(self._cgroup / "memory.current") or 0) - stat.get("inactive_file", 0)
            memory, free = limit, min(free, max(0, limit - used))
        return Hardware(self._cores(), memory, free)

    def _cores(self) -> int:
        cores = len(os.sched_getaffinity(0))
        quota, _, period = _text(self._cgroup / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, math.ceil(int(quota) / int(period)))
        return cores


@cache
def this_machine() -> Machine:
    """Return the reader for this machine. A process has only one."""
    return Machine()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # another version of cgroups, or none
        return ""


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdigit() else None


def _table(file: Path) -> dict[str, int]:
    """Return the first number after each name in the file."""
    lines = (line.split() for line in _text(file).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
