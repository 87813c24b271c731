"""A server as one process: started, stopped, killed, frozen."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tools.errors import NotRunning

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"


class ServerProcess(ABC):
    """Lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds what is stored and the log (``server.log``); starting again in the same root finds the same, under the same port.
    """

    title: str
    """In errors."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @abstractmethod
    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises ``ToolError`` where there is none to start, or it does not come up.
        """

    def _run(
        self,
        command: Sequence[str],
        answers: Callable[[], bool],
        patience: float,
        environment: dict[str, str] | None = None,
    ) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + patience
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-2500:]
                self.stop()
                raise NotRunning(f"{self.title} did not come up on port {self.port}:\n{told}", remedy=f"see {self.log}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server in order. What it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a process dies: at once."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stand, nothing is answered. It is frozen when this returns."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning(f"{self.title} does not run", remedy=f"start it first; its log is {self.log}")
        return self.process

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port(among: Sequence[int] = range(10_000, 30_000)) -> int:
    """None that the system gives to clients: one that tries to connect while the server is away could get the very port, and keep it.

    Raises ``NotRunning``: all of them are taken.
    """
    for port in secrets.SystemRandom().sample(among, len(among)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise NotRunning(f"all ports from {among[0]} to {among[-1]} are taken", remedy="end the servers that have them")
