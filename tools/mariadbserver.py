"""A real MariaDB on this machine, for tests and development.

The server is Debian's (``apt-get install mariadb-server``), or whatever ``PENSTOCK_TEST_MARIADBD`` names. No service of this machine is touched. It
does not run as root; where this process does, the server runs as a user of its own.

    with MariaDbServer(tmp_path) as server:
        sqlalchemy.create_engine(server.url)

From a shell: ``python tools/mariadbserver.py start|stop|status --state-dir DIR``.
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

PROGRAM_VARIABLE = "PENSTOCK_TEST_MARIADBD"
HOST = "127.0.0.1"
READY_TIMEOUT = 60.0
_USERS = ("mysql", "nobody")


def program() -> Path:
    """``mariadbd``.

    Raises ``Unsupported`` where there is none.
    """
    for name in (os.environ.get(PROGRAM_VARIABLE, ""), "mariadbd", "/usr/sbin/mariadbd"):
        found = shutil.which(name) if name else None
        if found:
            return Path(found)
    raise Unsupported(
        "there is no MariaDB on this machine",
        remedy=f"apt-get install mariadb-server (make test-mariadb does, as root on Debian), or set {PROGRAM_VARIABLE}",
    )


class MariaDbServer:
    """A server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds the data and the log (``server.log``); starting again in the same root finds the same tables, under the same port. Its
    superuser is ``admin``, whose password is made up; its database is ``test``. ``settings`` are the server's own ("-" written as "_").
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
        """SQLAlchemy's, of the superuser, with password; known once the server was started."""
        return self.url_of("admin", self.password)

    def url_of(self, user: str, password: str = "", database: str = "test") -> str:
        secret = f":{password}" if password else ""
        return f"mysql+pymysql://{user}{secret}@{HOST}:{self.port}/{database}"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises ``Unsupported`` where there is none to start, ``NotRunning`` when it does not come up.
        """
        mariadbd = program()
        data = self.root / "data"
        if not data.exists():
            self._initialize(mariadbd, data)
        if not self.port:
            self.port = _free_port()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command(mariadbd, data), f"--port={self.port}", f"--bind-address={HOST}"],
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
                raise NotRunning(f"MariaDB did not come up on port {self.port}:\n{told}", remedy=f"see {self.log}")
            time.sleep(0.02)
        return self

    def _command(self, mariadbd: Path, data: Path) -> list[str]:
        settings = {"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "64M", **self.settings}
        return [
            *self._as_user(),
            str(mariadbd),
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            "--tmpdir=.",  # of `data`, whatever becomes of the rights of folders above
            *(f"--{name.replace('_', '-')}={value}" for name, value in settings.items()),
        ]

    def _initialize(self, mariadbd: Path, data: Path) -> None:
        """What ``mariadb-install-db`` does needs its scripts; one run of ``--bootstrap`` with them makes the system's tables and ours."""
        self.root.mkdir(parents=True, exist_ok=True)
        data.mkdir(mode=0o700)
        user = self._user()
        if user is not None:
            os.chown(data, user.pw_uid, user.pw_gid)
            _let_through(self.root)
        install = shutil.which("mariadb-install-db") or str(mariadbd.parent.parent / "bin" / "mariadb-install-db")
        made = subprocess.run(
            [
                *self._as_user(),
                install,
                "--no-defaults",
                f"--datadir={data}",
                f"--tmpdir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise NotRunning(
                f"{install} ended with {made.returncode}: {(made.stdout + made.stderr)[-1500:]}",
                remedy="is the disk full?",
            )
        statements = (
            "FLUSH PRIVILEGES;\nCREATE DATABASE test CHARACTER SET utf8mb4;\n"
            f"CREATE USER admin@'%' IDENTIFIED BY '{self.password}';\nGRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;\n"
            "DROP USER root@localhost;\nDELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n"
        )
        told = subprocess.run(
            [*self._command(mariadbd, data), "--bootstrap", "--skip-networking"],
            input=statements,
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode or "ERROR" in told.stderr:
            raise NotRunning(
                f"MariaDB did not take its users: {told.stderr[-1500:]}", remedy="which version of MariaDB is it?"
            )
        (self.root / "password").write_text(self.password)

    def _answers(self) -> bool:
        """Whether it greets who connects."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.settimeout(5)
                return len(connection.recv(5)) == 5
        except OSError:
            return False

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
        """End the server in order. What it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a machine dies: nothing is written any more; the next start recovers from the log."""
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
            raise NotRunning("MariaDB does not run", remedy=f"start it first; its log is {self.log}")
        self.process.send_signal(number)

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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = MariaDbServer(options.state_dir).start()
    assert server.process is not None
    return {
        "MARIADB_URL": server.url,
        "MYSQL_HOST": HOST,
        "MYSQL_TCP_PORT": str(server.port),
        "MYSQL_PWD": server.password,
    }, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("mariadbserver", "A real MariaDB for development.", _start).run())
