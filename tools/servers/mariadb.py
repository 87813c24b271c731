"""A real MariaDB on this machine, for tests and development.

The server is Debian's (``apt-get install mariadb-server``), or the program that ``PENSTOCK_TEST_MARIADBD`` names. It uses
no service of this machine. It does not run as root: if this process is root, the server runs as a separate user.

    with MariaDbServer(tmp_path) as server:
        sqlalchemy.create_engine(server.url)

From a shell: ``python -m tools.servers mariadb start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.errors import NotRunning
from tools.servers.base.probes import answer
from tools.servers.base.process import PasswordServer
from tools.servers.base.programs import installed
from tools.servers.base.server import HOST
from tools.servers.base.user import ServerUser


class MariaDbServer(PasswordServer):
    """A server with the superuser ``admin`` and the database ``test``.

    ``settings`` are options of the server, with "_" for "-" in their names.
    """

    title = "MariaDB"

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root)
        self.settings = settings
        self._user = ServerUser("mysql", "nobody")

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the superuser, with password. Known after the first start."""
        return self.url_of("admin", self.password)

    def url_of(self, user: str, password: str = "", database: str = "test") -> str:
        secret = f":{password}" if password else ""
        return f"mysql+pymysql://{user}{secret}@{HOST}:{self.port}/{database}"

    def exports(self) -> dict[str, str]:
        return {
            "MARIADB_URL": self.url,
            "MYSQL_HOST": HOST,
            "MYSQL_TCP_PORT": str(self.port),
            "MYSQL_PWD": self.password,
        }

    def _command(self) -> list[str]:
        mariadbd = installed(self.title, ["mariadbd", "/usr/sbin/mariadbd"], "PENSTOCK_TEST_MARIADBD", "mariadb-server")
        data = self.root / "data"
        if not data.exists():
            self._initialize(mariadbd, data)
        return [*self._program(mariadbd, data), f"--port={self.port}", f"--bind-address={HOST}"]

    def _program(self, mariadbd: Path, data: Path) -> list[str]:
        settings = {"innodb_buffer_pool_size": "64M", "innodb_log_file_size": "64M", **self.settings}
        return [
            *self._user.prefix,
            str(mariadbd),
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            "--tmpdir=.",  # in `data`, so that it works whatever permissions the parent folders have
            *(f"--{name.replace('_', '-')}={value}" for name, value in settings.items()),
        ]

    def _initialize(self, mariadbd: Path, data: Path) -> None:
        """Create the system tables and the project's user with one run of ``--bootstrap`` and the scripts of ``mariadb-install-db``."""
        data.mkdir(mode=0o700)
        self._user.own(data)
        install = shutil.which("mariadb-install-db") or str(mariadbd.parent.parent / "bin" / "mariadb-install-db")
        places = [f"--datadir={data}", f"--tmpdir={data}"]
        command = [install, "--no-defaults", *places, "--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run([*self._user.prefix, *command], capture_output=True, text=True, check=False)
        if made.returncode:
            raise NotRunning(
                f"{install} ended with {made.returncode}: {(made.stdout + made.stderr)[-1500:]}",
                remedy="check that the disk has space",
            )
        statements = (
            "FLUSH PRIVILEGES;\nCREATE DATABASE test CHARACTER SET utf8mb4;\n"
            f"CREATE USER admin@'%' IDENTIFIED BY '{self.password}';\nGRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;\n"
            "DROP USER root@localhost;\nDELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n"
        )
        result = subprocess.run(
            [*self._program(mariadbd, data), "--bootstrap", "--skip-networking"],
            input=statements,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode or "ERROR" in result.stderr:
            raise NotRunning(
                f"MariaDB did not create its users: {result.stderr[-1500:]}", remedy="check the version of MariaDB"
            )

    def _responds(self) -> bool:
        """Return whether the server sends its greeting to a client."""
        return len(answer(self.port, b"", 5) or b"") == 5
