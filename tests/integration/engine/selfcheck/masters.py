"""Separate JobManager processes, which tests can kill, stop and continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.driver import PATIENCE_S, ROOT


class Master:
    """One JobManager process with its driver JVM and workers. Its `with` block kills the remaining processes at the end.

    Args:
        argument: JSON for the program `module`.
        environment: in addition to this process's.
    """

    def __init__(
        self,
        argument: str,
        log: Path,
        *,
        module: str = "tests.integration.engine.selfcheck.main",
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self._out: IO[bytes] = log.open("ab")
        path = os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
        )
        self._below: dict[int, processes.Process] = {}

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *error: object) -> None:
        self.note()
        self.kill()
        for process in self.left:
            processes.kill(process.pid)
        self._out.close()

    def note(self) -> None:
        """Remember the processes below it, because the kernel gives them another parent after its end."""
        self._below |= {p.pid: p for p in processes.descendants([self.process.pid])}

    @property
    def left(self) -> list[processes.Process]:
        """Return the remembered processes that are still alive."""
        return [process for process in self._below.values() if processes.is_alive(process)]

    def kill(self) -> None:
        """Kill only the JobManager's process with SIGKILL."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stop it and its driver's JVM with SIGSTOP, like a frozen machine. Its workers are other machines and continue."""
        self.note()
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        drivers = [p.pid for p in processes.descendants([self.process.pid]) if "SparkSubmit" in p.command]
        assert drivers, "the driver's JVM was not found"
        for pid in (self.process.pid, *drivers):
            os.kill(pid, number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the end, and return the exit code."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the JobManager has not ended:\n{self.describe()}") from None

    def describe(self) -> str:
        """Return the end of its log, with the stacks of its threads if it is still running."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
        return self.log.read_text(errors="replace")[-12_000:]


def latest_checkpoint(folder: Path, job_id: str) -> int:
    """Return the highest number of a completed checkpoint under `folder` (a directory), or 0."""
    found = [int(m.parent.name[4:]) for m in folder.glob(f"checkpoints/{job_id}/chk-*/_metadata")]
    return max(found, default=0)


def wait_for_checkpoint(folder: Path, job_id: str, number: int, master: Master) -> float:
    """Wait until this checkpoint, or a later one, is complete. Return the seconds."""
    began = time.monotonic()
    while latest_checkpoint(folder, job_id) < number:
        assert master.process.poll() is None, f"the JobManager ended:\n{master.describe()}"
        assert time.monotonic() - began < PATIENCE_S, f"no checkpoint {number}:\n{master.describe()}"
        master.note()
        time.sleep(0.1)
    return time.monotonic() - began
