"""A real S3 server on this machine, for tests, demos and the development cluster.

A mock of S3 lacks the guarantees that checkpoints need:

- exactly one of two writers wins a conditional put,
- a multipart upload appears completely or not at all,
- the server makes copies.

versitygw has these guarantees and needs only a directory. It is built from source once (``gobuild``).

    with S3Server(tmp_path) as s3:
        s3.create_bucket("checkpoints")
        fs = s3fs.S3FileSystem(**s3.storage_options())

Environment variables can name a running server instead, for tests without a Go toolchain or against another server.
They are ``PENSTOCK_TEST_S3_ENDPOINT``, ``PENSTOCK_TEST_S3_ACCESS_KEY``, ``PENSTOCK_TEST_S3_SECRET_KEY`` and, if it is not
``us-east-1``, ``PENSTOCK_TEST_S3_REGION``. This module never starts, pauses or stops such a server.

From a shell: ``python -m tools.servers s3 start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
from pathlib import Path
from typing import Self

from tools.errors import BuildFailed, NotRunning, ToolError
from tools.gobuild import GoModule
from tools.servers.base.process import ServerProcess
from tools.servers.base.server import HOST
from tools.servers.s3sign import Credentials, request

MODULE = GoModule(
    directory=Path(__file__).resolve().parent / "artifacts" / "s3",
    programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
)
ENDPOINT_VARIABLE = "PENSTOCK_TEST_S3_ENDPOINT"
HEALTH_PATH = "/-/health"


def ensure_binary() -> Path:
    """Return the program of versitygw, and build it if this version is missing.

    Raises ``BuildFailed`` if the build fails, for example without a Go toolchain.
    """
    try:
        return MODULE.ensure() / "versitygw"
    except BuildFailed as error:
        raise BuildFailed(
            f"no S3 server to test against: {error.problem}",
            remedy=f"{error.remedy}; or name a running server with {ENDPOINT_VARIABLE}, PENSTOCK_TEST_S3_ACCESS_KEY and "
            "PENSTOCK_TEST_S3_SECRET_KEY (MinIO or any S3 endpoint)",
        ) from error


class S3Server(ServerProcess):
    """An S3 server whose objects are in the folder ``data`` of ``root``.

    Args:
        credentials: random by default.
    """

    title = "The S3 server"
    patience_to_stop = 5.0
    advice = "check that the port is free, and that the file system of the directory supports extended attributes"

    def __init__(self, root: Path, port: int = 0, *, host: str = HOST, credentials: Credentials | None = None) -> None:
        super().__init__(root, port, host)
        self.external = bool(os.environ.get(ENDPOINT_VARIABLE))
        if self.external:
            credentials = _external_credentials()
        self.credentials = credentials or Credentials(f"penstock{secrets.token_hex(6)}", secrets.token_urlsafe(24))

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default=HOST, help=f"address to listen on ({HOST})")
        parser.add_argument("--port", type=int, default=0, help="port to listen on (a free one)")
        parser.add_argument("--bucket", action="append", default=[], help="bucket to create; can be repeated")

    @classmethod
    def with_options(cls, options: argparse.Namespace) -> Self:
        server = cls(options.state_dir, options.port, host=options.host)
        if server.external:
            raise ToolError(
                f"{ENDPOINT_VARIABLE} is set: {server.endpoint_url} is already running",
                remedy="use that server, or unset the variable",
            )
        return server

    def set_up(self, options: argparse.Namespace) -> None:
        for bucket in options.bucket:
            self.create_bucket(bucket)

    @property
    def endpoint_url(self) -> str:
        """The URL of the server, such as ``http://127.0.0.1:34567``. Known after the first start."""
        return os.environ[ENDPOINT_VARIABLE] if self.external else f"http://{self.host}:{self.port}"

    @property
    def access_key(self) -> str:
        """The id of the only account."""
        return self.credentials.access_key

    @property
    def secret_key(self) -> str:
        """The secret of the only account."""
        return self.credentials.secret_key

    def start(self) -> Self:
        if self.external:
            self._check_external()
            return self
        return super().start()

    def _command(self) -> list[str]:
        program = ensure_binary()
        data = self.root / "data"
        data.mkdir(exist_ok=True)
        listening = ["--port", f"{self.host}:{self.port}", "--health", HEALTH_PATH]
        return [str(program), *listening, "--quiet", "posix", str(data)]

    def _environment(self) -> dict[str, str]:
        """Return the environment with the keys, so that the list of processes does not show them."""
        return {
            **os.environ,
            "ROOT_ACCESS_KEY": self.access_key,
            "ROOT_SECRET_KEY": self.secret_key,
            "VGW_REGION": self.credentials.region,
        }

    def _responds(self) -> bool:
        """Return whether a server responds *and* accepts this object's keys. Another server could have taken the port first."""
        try:
            return request(self.endpoint_url, self.credentials, "GET", "/", timeout=2.0)[0] == 200
        except OSError:
            return False

    def create_bucket(self, name: str) -> None:
        """Create a bucket. Do nothing if this account already has it.

        Raises ``ToolError`` with the server's response if the server refuses.
        """
        status, body = request(self.endpoint_url, self.credentials, "PUT", f"/{name}")
        if status == 200 or (status == 409 and b"BucketAlreadyOwnedByYou" in body):
            return
        raise ToolError(
            f"bucket {name!r} was not created: {self.endpoint_url} returned {status}: {body.decode(errors='replace')}",
            remedy="use 3-63 lower-case letters, digits and hyphens, and check the keys",
        )

    def exports(self) -> dict[str, str]:
        """Return the environment variables that make every AWS SDK, including s3fs, use this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_REGION": self.credentials.region,
            "AWS_DEFAULT_REGION": self.credentials.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def storage_options(self) -> dict[str, object]:
        """Return the arguments of ``s3fs.S3FileSystem`` and of ``fsspec`` for ``s3://`` URLs on this server."""
        return {
            "key": self.access_key,
            "secret": self.secret_key,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": self.credentials.region},
        }

    def _process(self) -> subprocess.Popen[bytes]:
        if self.external:
            raise ToolError(
                f"the S3 server of {ENDPOINT_VARIABLE} was not started here and cannot be paused",
                remedy=f"unset {ENDPOINT_VARIABLE}",
            )
        return super()._process()

    def _check_external(self) -> None:
        try:
            status, body = request(self.endpoint_url, self.credentials, "GET", "/")
        except OSError as error:
            raise NotRunning(
                f"no S3 server responds at {self.endpoint_url} ({ENDPOINT_VARIABLE}): {error}",
                remedy=f"start it, or unset {ENDPOINT_VARIABLE} to build and start one here",
            ) from error
        if status != 200:
            raise NotRunning(
                f"{self.endpoint_url} returned {status} for the list of buckets: {body.decode(errors='replace')[:500]}",
                remedy="check PENSTOCK_TEST_S3_ACCESS_KEY, _SECRET_KEY and _REGION",
            )


def _external_credentials() -> Credentials:
    try:
        access_key = os.environ["PENSTOCK_TEST_S3_ACCESS_KEY"]
        secret_key = os.environ["PENSTOCK_TEST_S3_SECRET_KEY"]
    except KeyError as error:
        raise ToolError(
            f"{ENDPOINT_VARIABLE} is set, but {error.args[0]} is not", remedy=f"set it, or unset {ENDPOINT_VARIABLE}"
        ) from error
    return Credentials(access_key, secret_key, os.environ.get("PENSTOCK_TEST_S3_REGION", "us-east-1"))
