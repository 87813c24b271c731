"""A real Postgres on this machine, for tests and development.

The server is Debian's (``apt-get install postgresql``), or the one in the directory that ``PENSTOCK_TEST_POSTGRES_BIN``
names. It does not run as root: if this process is root, the server runs as a separate user.

    with PostgresServer(tmp_path) as server:
        psycopg.connect(server.conninfo)

From a shell: ``python -m tools.servers postgres start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from tools import processes
from tools.errors import NotRunning
from tools.servers.base.process import PasswordServer
from tools.servers.base.programs import installed
from tools.servers.base.server import HOST
from tools.servers.base.user import ServerUser

_LOGICAL = {"wal_level": "logical", "max_replication_slots": "30", "max_wal_senders": "30"}
"""Settings of a server with logical replication."""


def programs() -> Path:
    """Return the directory with ``initdb`` and ``postgres``.

    Raises ``Unsupported`` if Postgres is not installed.
    """
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return installed("Postgres", [*packaged, "initdb"], "PENSTOCK_TEST_POSTGRES_BIN", "postgresql").parent


class PostgresServer(PasswordServer):
    """A server with the superuser ``admin``. Every user needs a password.

    Args:
        host: address on which the server listens.
        is_logical: whether clients can read the changes of tables (logical replication).
        standby_of: a started server. This server copies its data, and then replays its log. Clients can only read.
        settings: options of the server, such as ``wal_level``.
    """

    title = "Postgres"
    stopped_by = signal.SIGINT  # it closes the connections immediately
    killed_by = signal.SIGQUIT  # like a crash of the machine: the next start recovers from the log

    def __init__(
        self,
        root: Path,
        *,
        host: str = HOST,
        is_logical: bool = False,
        standby_of: PostgresServer | None = None,
        **settings: str,
    ) -> None:
        super().__init__(root, host=host)
        self.settings = {**_LOGICAL, **settings} if is_logical else settings
        self._primary = standby_of
        if standby_of is not None:
            self.password = standby_of.password
        self._user = ServerUser("postgres", "nobody")

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default=HOST, help=f"address of the server for clients ({HOST})")

    @classmethod
    def with_options(cls, options: argparse.Namespace) -> Self:
        return cls(options.state_dir, host=options.host)

    @property
    def conninfo(self) -> str:
        """The connection string of the superuser, with password. Known after the first start."""
        return self.conninfo_of("admin", self.password)

    def conninfo_of(self, user: str, password: str = "", database: str = "postgres") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@{self.host}:{self.port}/{database}"

    def exports(self) -> dict[str, str]:
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": "admin",
            "PGPASSWORD": self.password,
            "PGDATABASE": "postgres",
        }

    def _command(self) -> list[str]:
        directory = programs()
        data = self.root / "data"
        if not data.exists():
            self._initialize(directory, data)
        listening = ["-p", str(self.port), "-h", self.host, "-k", ""]
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        return [*self._user.prefix, str(directory / "postgres"), "-D", str(data), *listening, *settings]

    def _responds(self) -> bool:
        question = [str(programs() / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        return subprocess.run(question, check=False).returncode == 0

    def _initialize(self, directory: Path, data: Path) -> None:
        """Create the system tables and the superuser, or copy the data of the primary."""
        data.mkdir(mode=0o700)
        self._user.own(data, self._secret)
        if self._primary is not None:
            copied = ["-D", str(data), "-d", self._primary.conninfo, "--write-recovery-conf", "--checkpoint=fast"]
            self._run([str(directory / "pg_basebackup"), *copied, "--no-sync"])
            return
        identity = ["-U", "admin", "-A", "scram-sha-256", "--pwfile", str(self._secret)]
        self._run([str(directory / "initdb"), "-D", str(data), *identity, "-E", "UTF8", "--no-sync", "--no-locale"])
        if self.host != HOST:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")

    def _run(self, command: list[str]) -> None:
        done = subprocess.run([*self._user.prefix, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotRunning(
                f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-1500:]}",
                remedy="check that the disk has space",
            )

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Freeze and resume also the processes of the connections. Each has its own process group."""
        super()._signal(process, number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            for child in processes.children(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, number)
