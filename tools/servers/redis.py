"""A real Redis on this machine, for tests and development.

The server is Debian's (``apt-get install redis-server``), or the program that ``PENSTOCK_TEST_REDIS_SERVER`` names. It uses no
service of this machine. It writes every command to disk before it responds, so a kill loses nothing.

    with RedisServer(tmp_path) as server:
        redis.Redis.from_url(server.url)

From a shell: ``python -m tools.servers redis start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

from pathlib import Path

from tools.servers.base.probes import answer
from tools.servers.base.process import PasswordServer
from tools.servers.base.programs import installed
from tools.servers.base.server import HOST


class RedisServer(PasswordServer):
    """A server whose user ``default`` has a random password.

    ``settings`` are options of ``redis.conf``, with "_" for "-" in their names.
    """

    title = "Redis"
    patience = 30.0

    def __init__(self, root: Path, **settings: str) -> None:
        super().__init__(root)
        self.settings = settings

    @property
    def url(self) -> str:
        """The URL with password. Known after the first start."""
        return self.url_of("default", self.password)

    def url_of(self, user: str, password: str) -> str:
        return f"redis://{user}:{password}@{HOST}:{self.port}/0"

    def exports(self) -> dict[str, str]:
        return {"REDIS_URL": self.url}

    def _command(self) -> list[str]:
        program = installed(self.title, ["redis-server", "valkey-server"], "PENSTOCK_TEST_REDIS_SERVER", "redis-server")
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
        return [str(program), str(configuration)]

    def _responds(self) -> bool:
        """Return whether the server has read its data and accepts commands."""
        expected = b"+OK\r\n+PONG\r\n"
        return answer(self.port, f"AUTH {self.password}\r\nPING\r\n".encode(), len(expected)) == expected
