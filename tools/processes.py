"""Processes that are found again later, by other programs than the one that started them.

A process id alone says little: by the time ``down`` runs the kernel may have given it to somebody else. With the time
of its start it is unique until the machine restarts.
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
    """One process of this machine: its id, and its start in clock ticks since the machine's."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether it still runs; one that ended and was not reaped does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] != "Z" and int(stat[19]) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it is gone."""
        if self.alive():
            os.kill(self.pid, number)

    def end(self, *, patience: float) -> None:
        """Ask it to end, and kill it after ``patience`` seconds; returns when it is gone."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self.alive():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            time.sleep(0.02)


def spawn(command: list[str], *, environment: dict[str, str], log: Path) -> int:
    """Start a process that outlives this one, in a session of its own; return its id.

    It gets none of the files that this one has open: a lock that its starter was started under would else be held by it for ever.

    ``subprocess`` would warn about it, since it expects whoever starts a process to see it end.
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
    """Without the one by which they are listed, which is closed again."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def reap(pid: int) -> None:
    """Wait for the end of a process that ``spawn`` started, if it is a child of this very process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def of(pid: int) -> ProcessRef:
    """A reference to the process that has this id now. Raises ``ProcessLookupError`` when none has."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return ProcessRef(pid, int(stat[19]))


def save(path: Path, process: ProcessRef) -> None:
    """Write the reference down."""
    path.write_text(json.dumps(asdict(process)))


def load(path: Path) -> ProcessRef | None:
    """The reference that was written down; None when there is none."""
    try:
        return ProcessRef(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def children(pid: int) -> list[int]:
    """The ids of a process's children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _stat(int(entry.name))
            if stat is not None and int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


def memory(pid: int) -> int:
    """The bytes of memory that are a process's share (PSS); 0 when it is gone."""
    try:
        for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def name(pid: int) -> str:
    """The name of a process's program; empty when it is gone."""
    try:
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` from the third, the state, on (``man 5 proc``)."""
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def innermost_pid(pid: int) -> int:
    """The id that a process has in its own pid namespace; 0 when it is gone."""
    try:
        for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        return 0
    return 0
