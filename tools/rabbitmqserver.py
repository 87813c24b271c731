"""A real RabbitMQ on this machine, for tests and development.

The server is Debian's (``apt-get install rabbitmq-server``), or whatever ``PENSTOCK_TEST_RABBITMQ_SBIN`` names the directory of. Where this
process is root, the server runs as a user of its own. Neither a service nor another node of this machine is touched: node, ports,
cookie and the daemon that knows the ports (epmd) are this one's own.

    with RabbitMQServer(tmp_path) as server:
        pika.BlockingConnection(pika.URLParameters(server.uri))

From a shell: ``python tools/rabbitmqserver.py start|stop|status --state-dir DIR [--queue NAME]…``.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import NotRunning, Unsupported
from tools.servercommand import ServerCommand

if TYPE_CHECKING:
    from types import TracebackType

SBIN_VARIABLE = "PENSTOCK_TEST_RABBITMQ_SBIN"
HOST = "127.0.0.1"
READY_TIMEOUT = 90.0
_USERS = ("rabbitmq", "nobody")
_EPMD = "epmd"
_QUIET = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Erlang's schedulers: as many as this machine is likely to have, which do not turn while they wait."""


def programs() -> Path:
    """The directory with ``rabbitmq-server`` and ``rabbitmqctl`` as RabbitMQ has them, without Debian's wrappers.

    Raises ``Unsupported`` where there is none.
    """
    packaged = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"), reverse=True)
    for directory in (os.environ.get(SBIN_VARIABLE, ""), *map(str, packaged)):
        if directory and (Path(directory) / "rabbitmq-server").exists():
            return Path(directory)
    raise Unsupported(
        "there is no RabbitMQ on this machine",
        remedy=f"apt-get install rabbitmq-server (make test-rabbitmq does, as root on Debian), or set {SBIN_VARIABLE}",
    )


class RabbitMQServer:
    """A server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds what is stored and the log (``server.log``); starting again in the same root finds the same queues, under the same port. Its
    administrator is ``admin``, whose password is made up. ``definitions`` are imported when it starts, as RabbitMQ exports them: users, vhosts,
    permissions, queues, exchanges.
    """

    def __init__(self, root: Path, definitions: dict[str, Any] | None = None, **settings: str) -> None:
        self.root = Path(root)
        self.definitions = definitions or {}
        self.settings = settings
        self.port = 0
        self._epmd_port = self._dist_port = 0
        secret = self.root / "password"
        self.password = secret.read_text() if secret.exists() else secrets.token_hex(12)
        self.process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Of the administrator, with password; known once the server was started."""
        return self.uri_of("admin", self.password)

    def uri_of(self, user: str, password: str, vhost: str = "%2F") -> str:
        return f"amqp://{user}:{password}@{HOST}:{self.port}/{vhost}"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in (self.process, self._epmd) if process is not None]

    def start(self) -> Self:
        """Start the server and wait until it takes connections.

        Raises ``Unsupported`` where there is none to start, ``NotRunning`` when it does not come up.
        """
        directory = programs()
        self._prepare()
        with self.log.open("ab") as log:
            environment = self._environment()
            self._epmd = self._spawn([_EPMD, "-address", HOST, "-port", str(self._epmd_port)], environment, log)
            self.process = self._spawn([str(directory / "rabbitmq-server")], environment, log)
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                told = self.log.read_text(errors="replace")[-1500:]
                self.stop()
                raise NotRunning(f"RabbitMQ did not come up on port {self.port}:\n{told}", remedy=f"see {self.log}")
            time.sleep(0.05)
        return self

    def _prepare(self) -> None:
        if not self.port:
            self.port, self._epmd_port, self._dist_port = (_free_port() for _ in range(3))
        stored = self.root / "stored"
        stored.mkdir(parents=True, exist_ok=True)
        (self.root / "password").write_text(self.password)
        (stored / "definitions.json").write_text(json.dumps(self.definitions))
        settings = {
            "listeners.tcp.default": f"{HOST}:{self.port}",
            "default_user": "admin",
            "default_pass": self.password,
            "disk_free_limit.absolute": "1MB",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
            **({"load_definitions": str(stored / "definitions.json")} if self.definitions else {}),
            **{name.replace("__", "."): value for name, value in self.settings.items()},
        }
        (stored / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        (stored / "enabled_plugins").write_text("[].\n")
        user = _user()
        if user is not None:
            for path in (stored, *stored.glob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
            _let_through(self.root)

    def _environment(self) -> dict[str, str]:
        stored = self.root / "stored"
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(stored),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"penstock{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": str(stored / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(stored / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(stored / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(stored / "mnesia"),
            "RABBITMQ_LOG_BASE": str(stored / "log"),
            "RABBITMQ_PID_FILE": str(stored / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(stored / "config"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(stored / "feature_flags"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _QUIET,
        }

    def _spawn(self, command: list[str], environment: dict[str, str], log: Any) -> subprocess.Popen[bytes]:
        user = _user()
        run_as = (
            [] if user is None else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        )
        return subprocess.Popen(
            [*run_as, *command],
            env=environment,
            cwd=self.root / "stored",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _answers(self) -> bool:
        """Whether it greets: the first answer of AMQP comes when the node has started all it has."""
        try:
            with socket.create_connection((HOST, self.port), timeout=2.0) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def command(self, *arguments: str) -> str:
        """What ``rabbitmqctl`` says; takes a second or two."""
        user = _user()
        identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [str(programs() / "rabbitmqctl"), "-q", *arguments],
            env=self._environment(),
            cwd=self.root / "stored",
            capture_output=True,
            text=True,
            check=False,
            **identity,  # type: ignore[call-overload]
        )
        if done.returncode:
            raise NotRunning(f"rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}", remedy=f"see {self.log}")
        return str(done.stdout)

    def stop(self) -> None:
        """End the server in order. What it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a process dies: at once, with what it had not written."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze every process of the server: connections stand, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("RabbitMQ does not run", remedy=f"start it first; its log is {self.log}")
        os.killpg(self.process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        self.process = self._epmd = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: this process's own."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next(known[name] for name in _USERS if name in known)


def _let_through(directory: Path) -> None:
    """The server's user must be able to reach what lies below."""
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)


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
    vhost = [{"name": "/"}]
    queues = [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}} for name in options.queue
    ]
    server = RabbitMQServer(options.state_dir)
    users = [{"name": "admin", "password": server.password, "tags": "administrator"}]
    rights = [{"user": "admin", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]
    server.definitions = {"vhosts": vhost, "users": users, "permissions": rights, "queues": queues}
    server.start()
    return {"RABBITMQ_URI": server.uri}, server.processes


if __name__ == "__main__":
    command = ServerCommand("rabbitmqserver", "A real RabbitMQ for development.", _start)
    command.parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME", help="a queue to have; may be repeated"
    )
    sys.exit(command.run())
