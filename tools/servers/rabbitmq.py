"""A real RabbitMQ on this machine, for tests and development.

The server is Debian's (``apt-get install rabbitmq-server``), or the one in the directory that
``PENSTOCK_TEST_RABBITMQ_SBIN`` names. If this process is root, the server runs as a separate user. The server does not
affect services or other nodes of this machine: it has a separate node name, ports, cookie and port daemon (epmd).

    with RabbitMQServer(tmp_path) as server:
        pika.BlockingConnection(pika.URLParameters(server.uri))

From a shell: ``python -m tools.servers rabbitmq start|stop|status --state-dir DIR [--queue NAME]…``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tools.errors import NotRunning
from tools.servers.base.probes import answer, listens
from tools.servers.base.process import PasswordServer, ServerProcess, free_port
from tools.servers.base.programs import installed
from tools.servers.base.server import HOST
from tools.servers.base.user import ServerUser

_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
_USERS = ("rabbitmq", "nobody")
_QUIET = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Options of Erlang's schedulers: two of them, which do not busy-wait."""


def programs() -> Path:
    """Return the directory with RabbitMQ's ``rabbitmq-server`` and ``rabbitmqctl``, not Debian's wrappers of them.

    Raises ``Unsupported`` if RabbitMQ is not installed.
    """
    server = _PROGRAMS / "rabbitmq-server"
    return installed("RabbitMQ", [server], "PENSTOCK_TEST_RABBITMQ_SBIN", "rabbitmq-server").parent


class _PortDaemon(ServerProcess):
    """Erlang's epmd, which tells ``rabbitmqctl`` the port of the node."""

    title = "epmd"

    @property
    def log(self) -> Path:
        return self.root / "epmd.log"

    def _command(self) -> list[str]:
        return [*ServerUser(*_USERS).prefix, "epmd", "-address", HOST, "-port", str(self.port)]

    def _responds(self) -> bool:
        return listens(self.port)


class RabbitMQServer(PasswordServer):
    """A server with the administrator ``admin``.

    The server imports ``definitions`` at its start. They have the format of RabbitMQ's export: users, vhosts, permissions,
    queues, exchanges. ``settings`` are entries of ``rabbitmq.conf``, with "__" for "." in their names.
    """

    title = "RabbitMQ"
    patience = 90.0

    def __init__(self, root: Path, definitions: dict[str, Any] | None = None, **settings: str) -> None:
        super().__init__(root)
        self.definitions = definitions or {}
        self.settings = settings
        self._stored = self.root / "stored"
        self._user = ServerUser(*_USERS)
        self._port_daemon = _PortDaemon(self.root)
        self._dist_port = 0

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--queue", action="append", default=[], metavar="NAME", help="queue to create; can be repeated"
        )

    @classmethod
    def with_options(cls, options: argparse.Namespace) -> Self:
        server = cls(options.state_dir)
        server.definitions = {
            "vhosts": [{"name": "/"}],
            "users": [{"name": "admin", "password": server.password, "tags": "administrator"}],
            "permissions": [{"user": "admin", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [
                {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
                for name in options.queue
            ],
        }
        return server

    @property
    def uri(self) -> str:
        """The URI of the administrator, with password. Known after the first start."""
        return self.uri_of("admin", self.password)

    def uri_of(self, user: str, password: str, vhost: str = "%2F") -> str:
        return f"amqp://{user}:{password}@{HOST}:{self.port}/{vhost}"

    def exports(self) -> dict[str, str]:
        return {"RABBITMQ_URI": self.uri}

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [*super().running(), *self._port_daemon.running()]

    def launch(self) -> None:
        programs()
        self._port_daemon.start()
        super().launch()

    def _command(self) -> list[str]:
        self._dist_port = self._dist_port or free_port()
        self._configure()
        return [*self._user.prefix, str(programs() / "rabbitmq-server")]

    def _configure(self) -> None:
        self._stored.mkdir(exist_ok=True)
        (self._stored / "definitions.json").write_text(json.dumps(self.definitions))
        settings = {
            "listeners.tcp.default": f"{HOST}:{self.port}",
            "default_user": "admin",
            "default_pass": self.password,
            "disk_free_limit.absolute": "1MB",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
            **({"load_definitions": str(self._stored / "definitions.json")} if self.definitions else {}),
            **{name.replace("__", "."): value for name, value in self.settings.items()},
        }
        lines = (f"{name} = {value}\n" for name, value in settings.items())
        (self._stored / "rabbitmq.conf").write_text("".join(lines))
        (self._stored / "enabled_plugins").write_text("[].\n")
        self._user.own(self._stored, *self._stored.glob("*"))

    def _folder(self) -> Path:
        return self._stored

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self._stored),
            "ERL_EPMD_PORT": str(self._port_daemon.port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"penstock{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": str(self._stored / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._stored / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._stored / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._stored / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._stored / "log"),
            "RABBITMQ_PID_FILE": str(self._stored / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self._stored / "config"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(self._stored / "feature_flags"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _QUIET,
        }

    def _responds(self) -> bool:
        """Return whether the server greets a client. Its first response over AMQP arrives when the node has started completely."""
        return answer(self.port, b"AMQP\x00\x00\x09\x01", 1) == b"\x01"

    def command(self, *arguments: str) -> str:
        """Return the output of ``rabbitmqctl``. The command takes one or two seconds."""
        done = subprocess.run(
            [*self._user.prefix, str(programs() / "rabbitmqctl"), "-q", *arguments],
            env=self._environment(),
            cwd=self._stored,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotRunning(f"rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}", remedy=f"see {self.log}")
        return done.stdout

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to every process of the node."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        super()._end(number)
        self._port_daemon.stop()
