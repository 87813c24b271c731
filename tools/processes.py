"""References to processes, for programs that did not start them.

A process id does not identify a process, because the kernel can give the id to another process later. The id and
the start time together are unique until the machine restarts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessRef:
    """One process of this machine: its id, and its start in clock ticks since the start of the machine."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Return whether the process still runs. A process that ended and was not reaped does not run."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] != "Z" and int(stat[19]) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal. Do nothing if the process is gone."""
        if self.alive():
            os.kill(self.pid, number)

    def end(self, *, patience: float) -> None:
        """Terminate the process, and kill it after ``patience`` seconds. Return when it is gone."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self.alive():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            time.sleep(0.02)


def spawn(command: list[str], *, environment: dict[str, str], log: Path) -> int:
    """Start a process that outlives this one, in a new session, and return its id.

    The process inherits no open files. Otherwise it would hold a lock of its parent forever.

    This function does not use ``subprocess``, because that module warns if a parent does not wait for its child.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise FileNotFoundError(command[0])
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        streams = [(os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)]
        others = [(os.POSIX_SPAWN_CLOSE, number) for number in _open_files() if number > 2]
        return os.posix_spawn(program, command, environment, file_actions=[nothing, *streams, *others], setsid=True)
    finally:
        os.close(output)


def _open_files() -> list[int]:
    """Return the open files of this process, except the one that lists them."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def reap(pid: int) -> None:
    """Wait until a process that ``spawn`` started ends, if it is a child of this process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def of(pid: int) -> ProcessRef:
    """Return a reference to the process that has this id now. Raise ``ProcessLookupError`` if no process has it."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return ProcessRef(pid, int(stat[19]))


def save(path: Path, process: ProcessRef) -> None:
    """Write the reference to a file."""
    path.write_text(json.dumps(asdict(process)))


def load(path: Path) -> ProcessRef | None:
    """Return the reference of a file, or None if the file does not exist."""
    try:
        return ProcessRef(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def children(pid: int) -> list[int]:
    """Return the ids of the children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


def memory(pid: int) -> int:
    """Return the proportional share of memory (PSS) of a process in bytes, or 0 if it is gone."""
    try:
        for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def name(pid: int) -> str:
    """Return the name of the program of a process, or "" if it is gone."""
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from the third field (the state) to the last (``man 5 proc``)."""
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def innermost_pid(pid: int) -> int:
    """Return the id of a process in its innermost pid namespace, or 0 if it is gone."""
    try:
        for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        return 0
    return 0
