"""The processes of a local cluster, found in /proc under the workers that the test's own cluster started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def descendants(roots: Iterable[int]) -> list[Process]:
    """All processes below these."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                continue  # it has just ended
            children.setdefault(parent, []).append(Process(int(folder.name), parent, command))
    found: list[Process] = []
    todo = list(roots)
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def executors(workers: Iterable[int]) -> list[int]:
    """Process ids of the executors under these Spark workers."""
    return [p.pid for p in descendants(workers) if "CoarseGrainedExecutorBackend" in p.command]


def python_workers(workers: Iterable[int]) -> list[int]:
    """Process ids of the Python workers (children of PySpark's daemons) under these Spark workers."""
    found = descendants(workers)
    daemons = {p.pid for p in found if "pyspark.daemon" in p.command}
    return [p.pid for p in found if p.parent in daemons]


def kill(pid: int) -> bool:
    """SIGKILL; False: it had ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
