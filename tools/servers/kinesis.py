"""A Kinesis on this machine, for tests and development.

The server is kinesis-mock. It speaks Amazon's protocol, and its shards can split and merge. It comes from npm, pinned by
its lock file, and starts in about two seconds. It needs Node.js 18 or later.

    with KinesisServer(tmp_path) as server:
        server.create("readings", shards=2)

From a shell: ``python -m tools.servers kinesis start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tools import building
from tools.errors import BuildFailed, Unsupported
from tools.gobuild import cache_root, file_lock
from tools.servers.base.probes import listens
from tools.servers.base.process import ServerProcess, free_port
from tools.servers.base.server import HOST

DIRECTORY = Path(__file__).resolve().parent / "artifacts" / "kinesis"
REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}
"""The server accepts any keys."""
_QUICK = ("CREATE_STREAM", "DELETE_STREAM", "MERGE_SHARDS", "SPLIT_SHARD", "UPDATE_SHARD_COUNT")


def package() -> Path:
    """Return the folder of the program, and fetch the program if it is missing.

    Raises ``BuildFailed`` if npm is missing, or cannot fetch the packages that the lock file pins.
    """
    digest = hashlib.sha256((DIRECTORY / "package-lock.json").read_bytes()).hexdigest()[:20]
    target = cache_root() / "npm" / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.with_suffix(".lock")):
        if not target.exists():
            npm = shutil.which("npm")
            if npm is None:
                raise BuildFailed("npm is not on the PATH", remedy="install Node.js (apt-get install nodejs npm)")
            with tempfile.TemporaryDirectory(prefix=".npm-", dir=target.parent) as scratch:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(DIRECTORY / name, scratch)
                building.run(
                    [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                    f"the packages of {DIRECTORY / 'package-lock.json'} could not be fetched",
                    remedy="check that npm reaches its registry (its .npmrc, a proxy)",
                    cwd=scratch,
                )
                (Path(scratch) / "node_modules" / "kinesis-local").rename(target)
    return target


class KinesisServer(ServerProcess):
    """A server that keeps its data in memory. A killed server loses its data."""

    title = "kinesis-mock"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def exports(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL_KINESIS": self.url, **KEYS}

    def _command(self) -> list[str]:
        node = shutil.which("node")
        if node is None:
            raise Unsupported("node is not on the PATH", remedy="install Node.js 18 (apt-get install nodejs)")
        return [node, str(package() / "main.js")]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KINESIS_MOCK_PLAIN_PORT": str(self.port),
            "KINESIS_MOCK_TLS_PORT": str(free_port()),
            "KINESIS_MOCK_CERT_PATH": str(package() / "server.json"),
            "AWS_REGION": REGION,
            "SHARD_LIMIT": "500",
            "LOG_LEVEL": "ERROR",
            **{f"{name}_DURATION": "50ms" for name in _QUICK},
        }

    def _responds(self) -> bool:
        return listens(self.port)

    def client(self) -> Any:
        return client_to(self.url)

    def create(self, name: str, shards: int = 1) -> str:
        """Create a stream, wait until it is active, and return its name."""
        client = self.client()
        client.create_stream(StreamName=name, ShardCount=shards)
        until_active(client, name)
        return name


def client_to(url: str) -> Any:
    """Return a botocore client for the server with this URL."""
    from botocore.session import get_session

    return get_session().create_client(
        "kinesis", region_name=REGION, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x"
    )


def until_active(client: Any, name: str) -> None:
    """Wait until the stream is created, or its shards are split or merged."""
    while client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
        time.sleep(0.02)
