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
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import Unsupported
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

PROGRAM_VARIABLE = "PENSTOCK_TEST_REDIS_SERVER"
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


class RedisServer(ServerProcess):
    """``settings`` are those of ``redis.conf`` ("-" written as "_"). The user ``default`` has a password, which is made up."""

    title = "Redis"

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root)
        self.settings = settings
        secret = self.root / "password"
        self.password = secret.read_text() if secret.exists() else secrets.token_hex(12)

    @property
    def url(self) -> str:
        """With password; known once the server was started."""
        return self.url_of("default", self.password)

    def url_of(self, user: str, password: str) -> str:
        return f"redis://{user}:{password}@{HOST}:{self.port}/0"

    def start(self) -> Self:
        found = program()
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "password").write_text(self.password)
        self.port = self.port or free_port()
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
        self._run([found, str(configuration)], self._answers, READY_TIMEOUT)
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


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = RedisServer(options.state_dir).start()
    assert server.process is not None
    return {"REDIS_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("redisserver", "A real Redis for development.", _start).run())
