"""The processes of a local cluster, found in /proc under the executors of the test's cluster."""

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
    """Clock ticks after the machine's start. Together with the process id they identify a process."""


def descendants(roots: Iterable[int], *, themselves: bool = False) -> list[Process]:
    """Return all processes below these. `themselves` includes these processes."""
    children: dict[int, list[Process]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                continue  # the process has just ended
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
    """Return the process id of an executor, which is one of these processes or below one."""
    wanted = f"--executor-id {executor_id} "
    return next(
        p.pid for p in descendants(workers, themselves=True) if wanted in p.command and "ExecutorBackend" in p.command
    )


def python_workers(roots: Iterable[int]) -> list[int]:
    """Return the process ids of the Python workers (children of PySpark's daemons) under these executors."""
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
    """Kill a process with SIGKILL. Return False if it had already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
