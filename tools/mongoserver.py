"""A server of MongoDB's protocol on this machine, for tests and development: FerretDB 1, which keeps its documents in SQLite.

MongoDB itself comes by no package registry. FerretDB is a server of its own that speaks the protocol, asks for passwords as MongoDB does (SCRAM), keeps unique indices, and has
what it has confirmed after ``kill``. It is built once from its Go module, in some minutes, and up in a fraction of a second. What it lacks of MongoDB: replica sets, change
streams, transactions, validators, decimals, and ``_id`` of embedded documents.

    with MongoServer(tmp_path) as server:
        server.client()["weather"]["means"].insert_one({"_id": 1})

From a shell: ``python tools/mongoserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools import building
from tools.gobuild import cache_root, file_lock, go_program, go_version, module_source
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

MODULE, VERSION = "github.com/FerretDB/FerretDB", "v1.24.2"
CHECKSUM = "h1:trrUU0LbmusMbyubhPS1IELncvrIwKrsRT2LW1UUWCw="
"""Its own ``go.sum`` pins all that it is built with."""
READY_TIMEOUT = 60.0
USER = "job"


def program() -> Path:
    """FerretDB's program; built if it was not before.

    Raises ``BuildFailed`` when it cannot be had.
    """
    built = cache_root() / "bin" / f"ferretdb-{VERSION}-{go_version()}" / "ferretdb"
    if built.exists():
        return built
    with file_lock(built.parent.with_suffix(".lock")):
        if not built.exists():
            _build(built)
    return built


def _build(target: Path) -> None:
    source = module_source(MODULE, VERSION, CHECKSUM)
    print(f"building ferretdb {VERSION} (once; into {target.parent})", file=sys.stderr, flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ferretdb-", dir=target.parent) as scratch:
        copy, made = Path(scratch) / "source", Path(scratch) / "ferretdb"
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        version = copy / "build" / "version"
        version.chmod(0o755)
        (version / "version.txt").write_text(f"{VERSION}\n")  # what its releases have, and its module does not
        command = [go_program(), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"]
        building.run(
            ["nice", "-n", "19", *command, "-tags", "ferretdb_no_postgresql", "-o", str(made), "./cmd/ferretdb"],
            f"ferretdb {VERSION} could not be built",
            remedy="is the Go module proxy reachable (go env GOPROXY)? Is there space for the build cache?",
            cwd=copy,
            env={"CGO_ENABLED": "0", "GOWORK": "off"},
        )
        for folder in (copy, *copy.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o755)
        made.rename(target)


class MongoServer(ServerProcess):
    """Keeps its databases over ``kill`` and another ``start``. Everybody needs the password of ``USER``, which is made up."""

    title = "FerretDB"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.secret = self.root / "password"
        self.password = self.secret.read_text() if self.secret.exists() else secrets.token_hex(12)

    @property
    def url(self) -> str:
        """With user and password."""
        return self.url_of(f"{USER}:{self.password}")

    def url_of(self, who: str = "") -> str:
        """``who``: "user", "user:password" or nobody."""
        return f"mongodb://{who}{'@' if who else ''}{HOST}:{self.port}/"

    def start(self) -> Self:
        found = program()
        for name in ("data", "state"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.secret.write_text(self.password)
        self.port = self.port or free_port()
        options = {
            "handler": "sqlite",
            "sqlite-url": f"file:{self.root}/data/",
            "state-dir": f"{self.root}/state",
            "listen-addr": f"{HOST}:{self.port}",
            "debug-addr": "-",
            "telemetry": "disable",
            "log-level": "error",
            "setup-database": "admin",
            "setup-username": USER,
            "setup-password": self.password,
        }
        told = [f"--{name}={value}" for name, value in options.items()]
        self._run([str(found), *told, "--test-enable-new-auth"], self._answers, READY_TIMEOUT)
        return self

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(3)
            return probe.connect_ex((HOST, self.port)) == 0

    def client(self) -> Any:
        """pymongo's, for this server."""
        from pymongo import MongoClient

        return MongoClient(self.url, tz_aware=True)


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = MongoServer(options.state_dir).start()
    assert server.process is not None
    return {"MONGODB_URL": server.url}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("mongoserver", "A server of MongoDB's protocol for development.", _start).run())
