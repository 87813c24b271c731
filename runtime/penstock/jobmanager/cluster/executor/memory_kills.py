"""What the system has killed for memory in this container: the counter `oom_kill` of its control group.

A process that is killed says nothing, and who waits for it sees a connection that ends. With control groups of version 1 the
system kills the largest process of a container and leaves the others, so the container runs on and Kubernetes tells nothing
of it, or only when it ends at some later time. With version 2 the kubelet has all of them killed at once.

https://docs.kernel.org/admin-guide/cgroup-v2.html (`memory.events`, `memory.max`) and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html (`memory.oom_control`, `memory.limit_in_bytes`).
"""

from __future__ import annotations

from pathlib import Path

_NO_LIMIT = 1 << 60
"""Version 1 says so much, or a little less, where there is none."""
_FILES = {"": ("memory.events", "memory.max"), "memory": ("memory.oom_control", "memory.limit_in_bytes")}
"""Where a hierarchy is mounted below the root → its files with the counter and the limit."""


class MemoryKills:
    """Counts from when it is made.

    Args:
        root: where control groups are mounted.
        own: says which one this process is in.
    """

    def __init__(self, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
        self._counter, self._limit = _find(Path(root), Path(own))
        self._counted = self._count()

    def new(self) -> int:
        """Processes that were killed since the last look; 0 where nobody can tell."""
        count = self._count()
        new, self._counted = max(0, count - self._counted), count
        return new

    @property
    def limit(self) -> int:
        """Bytes that the container may use; 0: as much as there is."""
        text = _read(self._limit).strip()
        limit = int(text) if text.isdigit() else 0
        return 0 if limit >= _NO_LIMIT else limit

    def _count(self) -> int:
        for line in _read(self._counter).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdigit():
                return int(value)
        return 0


def _find(root: Path, own: Path) -> tuple[Path | None, Path | None]:
    """Files of the process's own group: in a container that is what is mounted, elsewhere one below it."""
    for hierarchy, (counter, limit) in _FILES.items():
        group = _group(own, hierarchy)
        for folder in (root / hierarchy / group, root / hierarchy):
            if "oom_kill " in _read(folder / counter):
                return folder / counter, folder / limit
    return None, None


def _group(own: Path, hierarchy: str) -> str:
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.split(",").count(hierarchy):
            return path.lstrip("/")
    return ""


def _read(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text()
    except OSError:
        return ""
