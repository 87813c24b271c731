"""A server that is one process: start, stop, kill, freeze."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tools.errors import NotRunning
from tools.servers.base.server import HOST, Server

_PORTS = range(10_000, 30_000)
"""Ports outside the range that the system gives to clients.

A client that connects while the server is down could otherwise get the same port, and keep it.
"""


class ServerProcess(Server):
    """A server of one process, with its log in ``server.log``.

    Args:
        port: 0 chooses a free port at the first start.
        host: address on which the server listens.
    """

    patience = 60.0
    """Seconds from the start of the process until the server must respond."""
    patience_to_stop = 30.0
    """Seconds from the signal that stops the server to SIGKILL."""
    stopped_by = signal.SIGTERM
    killed_by = signal.SIGKILL
    ports: Sequence[int] = _PORTS
    """The ports that the server can use."""
    advice = ""
    """The first thing to check if the server does not start."""

    def __init__(self, root: Path, port: int = 0, host: str = HOST) -> None:
        super().__init__(root)
        self.port = port
        self.host = host
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command of the server, and write the configuration that it reads. ``root`` exists and ``port`` is known."""

    def _environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return dict(os.environ)

    def _folder(self) -> Path:
        """Return the working directory of the process."""
        return self.root

    @abstractmethod
    def _responds(self) -> bool:
        """Return whether the server responds to clients."""

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start the process and do not wait."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port(self.ports, self.host)
        command = self._command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self._folder(),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until the server responds. Raise ``NotRunning`` with the end of the log if it ends or takes too long."""
        process = self.process
        assert process is not None, "launch() starts the process"
        deadline = time.monotonic() + self.patience
        while not self._responds():
            code = process.poll()
            if code is not None or time.monotonic() > deadline:
                self.stop()
                reason = (
                    f"ended with code {code}" if code is not None else f"did not respond within {self.patience:.0f} s"
                )
                raise NotRunning(
                    f"{self.title} did not start on port {self.port}, because it {reason}:\n"
                    + self.log.read_text(errors="replace")[-2500:],
                    remedy=f"{self.advice}; see {self.log}" if self.advice else f"see {self.log}",
                )
            time.sleep(0.02)

    def exports(self) -> dict[str, str]:
        return {}

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [] if self.process is None else [self.process]

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        self._end(self.stopped_by)

    def kill(self) -> None:
        """Kill the server, like a crash of its process or of the machine."""
        self._end(self.killed_by)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze the server with SIGSTOP: connections stay open and get no response. Return after it is frozen."""
        process = self._process()
        self._signal(process, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused server. It then answers the requests that arrived during the pause."""
        self._signal(self._process(), signal.SIGCONT)

    def _process(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning(f"{self.title} is not running", remedy=f"start it first; its log is {self.log}")
        return self.process

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to all processes of the server that need it."""
        process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        self._signal(process, signal.SIGCONT)
        self._signal(process, number)
        try:
            process.wait(timeout=self.patience_to_stop)
        except subprocess.TimeoutExpired:
            self._signal(process, signal.SIGKILL)
            process.wait()


class PasswordServer(ServerProcess):
    """A server whose administrator has a random password, which the file ``password`` in ``root`` keeps."""

    def __init__(self, root: Path, port: int = 0, host: str = HOST) -> None:
        super().__init__(root, port, host)
        self._secret = self.root / "password"
        self.password = self._secret.read_text() if self._secret.exists() else secrets.token_hex(12)

    def launch(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._secret.write_text(self.password)
        super().launch()


def free_port(among: Sequence[int] = _PORTS, host: str = HOST) -> int:
    """Return a free port.

    Raises ``NotRunning`` if all ports are taken.
    """
    return free_ports(1, among, host)[0]


def free_ports(count: int, among: Sequence[int] = _PORTS, host: str = HOST) -> list[int]:
    """Return different free ports.

    Raises ``NotRunning`` if too few ports are free.
    """
    found: list[int] = []
    for port in secrets.SystemRandom().sample(among, len(among)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            found.append(port)
        if len(found) == count:
            return found
    raise NotRunning(
        f"{count} ports from {among[0]} to {among[-1]} are needed, and {len(found)} are free",
        remedy="stop the servers that use them",
    )
