"""A server with MongoDB's protocol on this machine, for tests and development: FerretDB 1, which stores its documents in SQLite.

No package registry offers MongoDB itself. FerretDB is a different server with the same protocol. It supports passwords
(SCRAM) and unique indices like MongoDB, and ``kill`` loses no confirmed write. It is built once from its Go module, which
takes some minutes, and starts in less than a second. FerretDB lacks these features of MongoDB: replica sets, change
streams, transactions, validators, decimals, and ``_id`` of embedded documents.

    with MongoServer(tmp_path) as server:
        server.client()["weather"]["means"].insert_one({"_id": 1})

From a shell: ``python -m tools.servers mongodb start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools import building
from tools.gobuild import cache_root, file_lock, go_program, go_version, module_source
from tools.servers.base.probes import listens
from tools.servers.base.process import PasswordServer
from tools.servers.base.server import HOST

MODULE, VERSION = "github.com/FerretDB/FerretDB", "v1.24.2"
CHECKSUM = "h1:trrUU0LbmusMbyubhPS1IELncvrIwKrsRT2LW1UUWCw="
"""The module's ``go.sum`` pins all of its dependencies."""
USER = "job"


def program() -> Path:
    """Return FerretDB's program, and build it if it is missing.

    Raises ``BuildFailed`` if the build fails.
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
        (version / "version.txt").write_text(f"{VERSION}\n")  # its releases have this file, and its Go module does not
        command = [go_program(), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"]
        building.run(
            ["nice", "-n", "19", *command, "-tags", "ferretdb_no_postgresql", "-o", str(made), "./cmd/ferretdb"],
            f"ferretdb {VERSION} could not be built",
            remedy="check that the Go module proxy is reachable (go env GOPROXY), and that the build cache has space",
            cwd=copy,
            env={"CGO_ENABLED": "0", "GOWORK": "off"},
        )
        for folder in (copy, *copy.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o755)
        made.rename(target)


class MongoServer(PasswordServer):
    """A server that keeps its databases after ``kill`` and another ``start``. Every client needs the random password of ``USER``."""

    title = "FerretDB"

    @property
    def url(self) -> str:
        """The URL with user and password."""
        return self.url_of(f"{USER}:{self.password}")

    def url_of(self, who: str = "") -> str:
        """Return the URL for ``who``: "user", "user:password", or "" for no user."""
        return f"mongodb://{who}{'@' if who else ''}{HOST}:{self.port}/"

    def exports(self) -> dict[str, str]:
        return {"MONGODB_URL": self.url}

    def _command(self) -> list[str]:
        for name in ("data", "state"):
            (self.root / name).mkdir(exist_ok=True)
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
        flags = [f"--{name}={value}" for name, value in options.items()]
        return [str(program()), *flags, "--test-enable-new-auth"]

    def _responds(self) -> bool:
        return listens(self.port)

    def client(self) -> Any:
        """Return a pymongo client for this server."""
        from pymongo import MongoClient

        return MongoClient(self.url, tz_aware=True)
