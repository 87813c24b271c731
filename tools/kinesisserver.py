"""A Kinesis on this machine, for tests and development: kinesis-mock, which speaks Amazon's protocol, with shards that split and merge.

It comes from npm, pinned by its lock file, and is up in some two seconds; it needs Node.js 18 or later.

    with KinesisServer(tmp_path) as server:
        server.create("readings", shards=2)

From a shell: ``python tools/kinesisserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools import building
from tools.errors import BuildFailed, Unsupported
from tools.gobuild import cache_root, file_lock
from tools.servercommand import ServerCommand
from tools.serverprocess import HOST, ServerProcess, free_port

DIRECTORY = Path(__file__).resolve().parent / "kinesisserver"
READY_TIMEOUT = 60.0
"""Seconds; it needs two on an idle machine."""
REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}
"""It takes any."""
_QUICK = ("CREATE_STREAM", "DELETE_STREAM", "MERGE_SHARDS", "SPLIT_SHARD", "UPDATE_SHARD_COUNT")


def package() -> Path:
    """The folder of the program; fetched if it was not before.

    Raises ``BuildFailed`` when there is no npm, or it cannot be fetched as the lock file has it.
    """
    digest = hashlib.sha256((DIRECTORY / "package-lock.json").read_bytes()).hexdigest()[:20]
    target = cache_root() / "npm" / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.with_suffix(".lock")):
        if not target.exists():
            npm = shutil.which("npm")
            if npm is None:
                raise BuildFailed("there is no npm on the PATH", remedy="install Node.js (apt-get install nodejs npm)")
            with tempfile.TemporaryDirectory(prefix=".npm-", dir=target.parent) as scratch:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(DIRECTORY / name, scratch)
                building.run(
                    [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                    f"what {DIRECTORY / 'package-lock.json'} names could not be fetched",
                    remedy="does npm reach its registry (its .npmrc, a proxy)?",
                    cwd=scratch,
                )
                (Path(scratch) / "node_modules" / "kinesis-local").rename(target)
    return target


class KinesisServer(ServerProcess):
    """Keeps what it has in memory: a killed one has forgotten it."""

    title = "kinesis-mock"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        program = package()
        node = shutil.which("node")
        if node is None:
            raise Unsupported("there is no node on the PATH", remedy="install Node.js 18 (apt-get install nodejs)")
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        variables = {
            "KINESIS_MOCK_PLAIN_PORT": str(self.port),
            "KINESIS_MOCK_TLS_PORT": str(free_port()),
            "KINESIS_MOCK_CERT_PATH": str(program / "server.json"),
            "AWS_REGION": REGION,
            "SHARD_LIMIT": "500",
            "LOG_LEVEL": "ERROR",
            **{f"{name}_DURATION": "50ms" for name in _QUICK},
        }
        self._run([node, str(program / "main.js")], self._answers, READY_TIMEOUT, variables)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1):
                return True
        except OSError:
            return False

    def client(self) -> Any:
        """botocore's, for this server."""
        from botocore.session import get_session

        return get_session().create_client(
            "kinesis", region_name=REGION, endpoint_url=self.url, aws_access_key_id="x", aws_secret_access_key="x"
        )

    def create(self, name: str, shards: int = 1) -> str:
        """A new stream; returns its name when it can be used."""
        client = self.client()
        client.create_stream(StreamName=name, ShardCount=shards)
        self.until_active(name)
        return name

    def until_active(self, name: str) -> None:
        """Wait until it is made, or its shards are split or merged."""
        client = self.client()
        while client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
            time.sleep(0.02)


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = KinesisServer(options.state_dir).start()
    assert server.process is not None
    return {"AWS_ENDPOINT_URL_KINESIS": server.url, **KEYS}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("kinesisserver", "A Kinesis for development.", _start).run())
