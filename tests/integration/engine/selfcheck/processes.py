"""The processes of a local cluster, found in /proc under the executors that the test's own cluster started."""

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
    started: int
    """Clock ticks after the machine's start: with the number it tells a process from a later one with its number."""


def descendants(roots: Iterable[int], *, themselves: bool = False) -> list[Process]:
    """All processes below these; `themselves`: these, too."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                continue  # it has just ended
            process = Process(int(folder.name), int(fields[1]), command, int(fields[19]))
            children.setdefault(process.parent, []).append(process)
    todo = list(roots)
    found = [process for below in children.values() for process in below if themselves and process.pid in todo]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def executor(workers: Iterable[int], executor_id: str) -> int:
    """Process id of an executor, which is one of these or below."""
    wanted = f"--executor-id {executor_id} "
    return next(
        p.pid for p in descendants(workers, themselves=True) if wanted in p.command and "ExecutorBackend" in p.command
    )


def python_workers(roots: Iterable[int]) -> list[int]:
    """Process ids of the Python workers (children of PySpark's daemons) under these executors."""
    found = descendants(roots)
    daemons = {p.pid for p in found if "python_daemon" in p.command}
    return [p.pid for p in found if p.parent in daemons]


def is_alive(process: Process) -> bool:
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == process.started


def kill(pid: int) -> bool:
    """SIGKILL; False: it had ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
