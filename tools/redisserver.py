"""A real Redis on this machine, for tests and development.

The server is Debian's (``apt-get install redis-server``), or whatever ``PENSTOCK_TEST_REDIS_SERVER`` names. No service of this machine is touched. It writes
every command to its disk before it answers, so that one that is killed forgets nothing.

    with RedisServer(tmp_path) as server:
        redis.Redis.from_url(server.url)

From a shell: ``python tools/redisserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import NotRunning, Unsupported
from tools.servercommand import ServerCommand

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM_VARIABLE = "PENSTOCK_TEST_REDIS_SERVER"
HOST = "127.0.0.1"
READY_TIMEOUT = 30.0


def program() -> str:
    """Raises ``Unsupported`` where there is none."""
    for name in (os.environ.get(PROGRAM_VARIABLE, ""), "redis-server", "valkey-server"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise Unsupported(
        "there is no Redis on this machine",
        remedy=f"apt-get install redis-server (make test-redis does, as root on Debian), or set {PROGRAM_VARIABLE}",
    )


class RedisServer:
    """A server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds what is stored and the log (``server.log``); starting again in the same root finds the same keys, under the same port. ``settings`` are those of
    ``redis.conf`` ("-" written as "_"). The user ``default`` has a password, which is made up.
    """

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = Path(root)
        self.settings = settings
        self.port = 0
        secret = self.root / "password"
        self.password = secret.read_text() if secret.exists() else secrets.token_hex(12)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With password; known once the server was started."""
        return self.url_of("default", self.password)

    def url_of(self, user: str, password: str) -> str:
        return f"redis://{user}:{password}@{HOST}:{self.port}/0"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises ``Unsupported`` where there is none to start, ``NotRunning`` when it does not come up.
        """
        found = program()
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "password").write_text(self.password)
        self.port = self.port or _free_port()
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.root),
            "requirepass": self.password,
            "masterauth": self.password,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": '""',
            **{name.replace("_", "-"): value for name, value in self.settings.items()},
        }
        configuration = self.root / "redis.conf"
        configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [found, str(configuration)],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-1500:]
                self.stop()
                raise NotRunning(f"Redis did not come up on port {self.port}:\n{told}", remedy=f"see {self.log}")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        """Whether it has read its data and takes commands."""
        try:
            with socket.create_connection((HOST, self.port), timeout=2.0) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    more = connection.recv(100)
                    if not more:
                        return False
                    answer += more
                return b"+PONG" in answer
        except OSError:
            return False

    def stop(self) -> None:
        """End the server in order. What it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a process dies: at once."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze the server: connections stand, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("Redis does not run", remedy=f"start it first; its log is {self.log}")
        self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
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


def _free_port() -> int:
    """None that the system gives to clients: one that tries to connect while the server is away could get the very port, and keep it."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = RedisServer(options.state_dir).start()
    assert server.process is not None
    return {"REDIS_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("redisserver", "A real Redis for development.", _start).run())
