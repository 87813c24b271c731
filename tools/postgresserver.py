"""A real Postgres on this machine, for tests and development.

The server is Debian's (``apt-get install postgresql``), or whatever ``PENSTOCK_TEST_POSTGRES_BIN`` names the directory of. It does not run as
root; where this process does, the server runs as a user of its own.

    with PostgresServer(tmp_path) as server:
        psycopg.connect(server.conninfo)

From a shell: ``python tools/postgresserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import os
import pwd
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

BIN_VARIABLE = "PENSTOCK_TEST_POSTGRES_BIN"
HOST = "127.0.0.1"
READY_TIMEOUT = 60.0
_USERS = ("postgres", "nobody")


def programs() -> Path:
    """The directory with ``initdb`` and ``postgres``.

    Raises ``Unsupported`` where there is none.
    """
    found = [
        os.environ.get(BIN_VARIABLE, ""),
        *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)),
    ]
    for directory in (*found, os.path.dirname(shutil.which("initdb") or "")):
        if directory and (Path(directory) / "initdb").exists():
            return Path(directory)
    raise Unsupported(
        "there is no Postgres on this machine",
        remedy=f"apt-get install postgresql (make test-postgres does, as root on Debian), or set {BIN_VARIABLE}",
    )


class PostgresServer:
    """A server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds the data and the log (``server.log``); starting again in the same root finds the same tables, under the same port. Its
    superuser is ``admin``, whose password is made up; everybody needs one. ``settings`` are the server's own, such as ``wal_level``. ``host``: the
    address that it listens at.
    """

    def __init__(self, root: Path, *, host: str = HOST, **settings: str) -> None:
        self.root = Path(root)
        self.host = host
        self.settings = settings
        self.port = 0
        secret = self.root / "password"
        self.password = secret.read_text() if secret.exists() else secrets.token_hex(12)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def conninfo(self) -> str:
        """Of the superuser, with password; known once the server was started."""
        return self.conninfo_of("admin", self.password)

    def conninfo_of(self, user: str, password: str = "", database: str = "postgres") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@{self.host}:{self.port}/{database}"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises ``Unsupported`` where there is none to start, ``NotRunning`` when it does not come up.
        """
        directory = programs()
        data = self.root / "data"
        if not data.exists():
            self._initialize(directory, data)
        if not self.port:
            self.port = _free_port(self.host)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._as_user(),
                    str(directory / "postgres"),
                    "-D",
                    str(data),
                    "-p",
                    str(self.port),
                    "-h",
                    self.host,
                    "-k",
                    "",
                    *(part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT
        ask = [str(directory / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-1500:]
                self.stop()
                raise NotRunning(f"Postgres did not come up on port {self.port}:\n{told}", remedy=f"see {self.log}")
            time.sleep(0.02)
        return self

    def _initialize(self, directory: Path, data: Path) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        data.mkdir(mode=0o700)
        secret = self.root / "password"
        secret.write_text(self.password)
        user = self._user()
        if user is not None:
            for path in (data, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
            _let_through(self.root)
        arguments = [
            "-D",
            str(data),
            "-U",
            "admin",
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(secret),
            "-E",
            "UTF8",
            "--no-sync",
            "--no-locale",
        ]
        made = subprocess.run(
            [*self._as_user(), str(directory / "initdb"), *arguments], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise NotRunning(f"initdb ended with {made.returncode}: {made.stderr[-1500:]}", remedy="is the disk full?")
        if self.host != HOST:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")

    @staticmethod
    def _user() -> pwd.struct_passwd | None:
        """Whom the server runs as; None: this process's own."""
        if os.geteuid() != 0:
            return None
        known = {user.pw_name: user for user in pwd.getpwall()}
        return next(known[name] for name in _USERS if name in known)

    def _as_user(self) -> list[str]:
        user = self._user()
        return [] if user is None else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def stop(self) -> None:
        """End the server, at once: connections are cut. What it stored stays."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a machine dies: nothing is written any more; the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze every process of the server: connections stand, nothing is answered."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("Postgres does not run", remedy=f"start it first; its log is {self.log}")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (self.process.pid, *map(int, children)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _let_through(directory: Path) -> None:
    """The server's user must be able to reach what lies below."""
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = PostgresServer(options.state_dir, host=options.host).start()
    assert server.process is not None
    return {
        "PGHOST": options.host,
        "PGPORT": str(server.port),
        "PGUSER": "admin",
        "PGPASSWORD": server.password,
        "PGDATABASE": "postgres",
    }, [server.process]


if __name__ == "__main__":
    command = ServerCommand("postgresserver", "A real Postgres for development.", _start)
    command.parser.add_argument("--host", default=HOST, help=f"address that clients reach it under ({HOST})")
    sys.exit(command.run())
