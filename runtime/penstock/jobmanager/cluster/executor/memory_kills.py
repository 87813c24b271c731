"""Memory of this container: its limit, its use, and the out-of-memory kills. They come from its control group.

A killed process cannot report the reason, and its parent sees only that a connection ends. Control groups of version 1 kill
the largest process of a container and keep the others, so the container keeps running. Kubernetes then reports no kill, or reports it
only when the container ends later. Version 2 makes the kubelet kill all processes of the container at once.

https://docs.kernel.org/admin-guide/cgroup-v2.html (`memory.events`, `memory.max`) and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html (`memory.oom_control`, `memory.limit_in_bytes`).
"""

from __future__ import annotations

from pathlib import Path

_NO_LIMIT = 1 << 60
"""Threshold for an unlimited container. Version 1 reports about this value if no limit is set."""
_FILES = {"": ("memory.events", "memory.max"), "memory": ("memory.oom_control", "memory.limit_in_bytes")}
"""Mount point of a hierarchy below the root → its files with the counter and the limit."""
_USED = {
    "memory.max": ("memory.current", "inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_inactive_file"),
}
"""File with the limit → the file with the memory in use, and the name of the file cache in `memory.stat`."""


class MemoryKills:
    """Counter of kills since its creation.

    Args:
        root: mount point of the control groups.
        own: file that names the control group of this process.
    """

    def __init__(self, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
        self._counter, self._limit = _find(Path(root), Path(own))
        self._counted = self._count()

    def new(self) -> int:
        """Return the number of processes that were killed since the last call, or 0 if the system does not count kills."""
        count = self._count()
        new, self._counted = max(0, count - self._counted), count
        return new

    @property
    def limit(self) -> int:
        """Return the memory limit of the container in bytes, or 0 if it has none."""
        text = _read(self._limit).strip()
        limit = int(text) if text.isdigit() else 0
        return 0 if limit >= _NO_LIMIT else limit

    @property
    def used(self) -> int:
        """Return the memory in use in bytes, without the file cache that Linux frees at once. Return 0 if it is not known."""
        if self._limit is None:
            return 0
        file, cache = _USED[self._limit.name]
        text = _read(self._limit.parent / file).strip()
        return max(0, int(text) - _number(self._limit.parent / "memory.stat", cache)) if text.isdigit() else 0

    def _count(self) -> int:
        return _number(self._counter, "oom_kill")


def _find(root: Path, own: Path) -> tuple[Path | None, Path | None]:
    """Return the files of the process's control group. A container mounts its own group. Elsewhere the group is a subdirectory."""
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


def _number(path: Path | None, name: str) -> int:
    """Return the number that follows a name in a file, or 0."""
    for line in _read(path).splitlines():
        found, _, value = line.partition(" ")
        if found == name and value.isdigit():
            return int(value)
    return 0


def _read(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text()
    except OSError:
        return ""
