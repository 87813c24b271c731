"""A real S3 server on this machine, for tests, demos and the development cluster.

A mock of S3 keeps none of the promises that checkpoints rest on: conditional puts that exactly one of two writers
wins, multipart uploads that appear at once or not at all, copies made by the server. versitygw keeps them, and
needs nothing but a directory; it is built from source once (``gobuild``).

    with S3Server(tmp_path) as s3:
        s3.create_bucket("checkpoints")
        fs = s3fs.S3FileSystem(**s3.storage_options())

Where there is no Go toolchain, or to test against another server, the environment names one that runs:
``PENSTOCK_TEST_S3_ENDPOINT``, ``PENSTOCK_TEST_S3_ACCESS_KEY``, ``PENSTOCK_TEST_S3_SECRET_KEY`` and, if it is not
``us-east-1``, ``PENSTOCK_TEST_S3_REGION``. Such a server is used as it is: never started, paused or stopped.

From a shell: ``python tools/s3server.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import BuildFailed, NotRunning, ToolError
from tools.gobuild import GoModule
from tools.s3sign import Credentials, request

if TYPE_CHECKING:
    from types import TracebackType

MODULE = GoModule(
    directory=Path(__file__).resolve().parent / "s3server",
    programs={"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
)
ENDPOINT_VARIABLE = "PENSTOCK_TEST_S3_ENDPOINT"
HEALTH_PATH = "/-/health"
READY_TIMEOUT = 60.0
"""Seconds; the server needs a few hundred milliseconds on an idle machine."""


def ensure_binary() -> Path:
    """Build versitygw if this pin of it was not built before; return the program.

    Raises ``BuildFailed`` when it cannot be built, such as without a Go toolchain.
    """
    try:
        return MODULE.ensure() / "versitygw"
    except BuildFailed as error:
        raise BuildFailed(
            f"no S3 server to test against: {error.problem}",
            remedy=f"{error.remedy}; or give a running one by {ENDPOINT_VARIABLE}, PENSTOCK_TEST_S3_ACCESS_KEY and "
            "PENSTOCK_TEST_S3_SECRET_KEY (MinIO or any S3 endpoint)",
        ) from error


class S3Server:
    """An S3 server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds what the server stores (``data``) and its log (``server.log``); starting again in the same
    root finds the same objects. ``port`` 0 takes a free one, and keeps it when this object starts again, so that
    a test can take the server away and bring it back under the same address. ``host`` is the address to listen
    on, and ``credentials`` are made up unless given.
    """

    def __init__(
        self, root: Path, port: int = 0, *, host: str = "127.0.0.1", credentials: Credentials | None = None
    ) -> None:
        self.root = Path(root)
        self.port = port
        self.host = host
        self.external = bool(os.environ.get(ENDPOINT_VARIABLE))
        self.process: subprocess.Popen[bytes] | None = None
        if self.external:
            credentials = _external_credentials()
        self.credentials = credentials or Credentials(f"penstock{secrets.token_hex(6)}", secrets.token_urlsafe(24))

    @property
    def endpoint_url(self) -> str:
        """Such as ``http://127.0.0.1:34567``; known once the server was started."""
        return os.environ[ENDPOINT_VARIABLE] if self.external else f"http://{self.host}:{self.port}"

    @property
    def access_key(self) -> str:
        """The id of the only account."""
        return self.credentials.access_key

    @property
    def secret_key(self) -> str:
        """The secret of the only account."""
        return self.credentials.secret_key

    @property
    def log(self) -> Path:
        """What the server wrote."""
        return self.root / "server.log"

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises ``BuildFailed`` when there is no program to start, ``NotRunning`` when it does not come up.
        """
        if self.external:
            self._check_external()
            return self
        binary = ensure_binary()
        attempts = 1 if self.port else 5
        for attempt in range(1, attempts + 1):
            if attempts > 1:
                self.port = _free_port(self.host)
            try:
                self._launch(binary)
                return self
            except NotRunning:
                if attempt == attempts:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the server; what it stored stays in ``root``. Does nothing when it does not run."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Freeze the server: connections are taken, nothing is answered, as when the network swallows packets.

        It is frozen when this returns.
        """
        process = self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused server go on; it then answers what it was asked meanwhile."""
        self._signal(signal.SIGCONT)

    def create_bucket(self, name: str) -> None:
        """Make a bucket; one that this account has already is left as it is.

        Raises ``ToolError`` with the server's answer when it refuses.
        """
        status, body = request(self.endpoint_url, self.credentials, "PUT", f"/{name}")
        if status == 200 or (status == 409 and b"BucketAlreadyOwnedByYou" in body):
            return
        raise ToolError(
            f"bucket {name!r} was not made, {self.endpoint_url} answered {status}: {body.decode(errors='replace')}",
            remedy="bucket names are 3-63 lower-case letters, digits and hyphens; are the keys right?",
        )

    def env(self) -> dict[str, str]:
        """The environment that makes every AWS SDK, and so s3fs, use this server."""
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
        """The arguments of ``s3fs.S3FileSystem`` and of ``fsspec`` for ``s3://`` URLs on this server."""
        return {
            "key": self.access_key,
            "secret": self.secret_key,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": self.credentials.region},
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, binary: Path) -> None:
        data = self.root / "data"
        data.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [binary, "--port", f"{self.host}:{self.port}", "--health", HEALTH_PATH, "--quiet", "posix", data],
                # by environment, so that the keys do not show in the list of processes
                env={
                    **os.environ,
                    "ROOT_ACCESS_KEY": self.access_key,
                    "ROOT_SECRET_KEY": self.secret_key,
                    "VGW_REGION": self.credentials.region,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotRunning(
                    f"the S3 server on {self.host}:{self.port} ended at once with code {self.process.returncode}:\n"
                    + self.log.read_text(errors="replace")[-1500:],
                    remedy="is the port free, and does the file system of the directory have extended attributes?",
                )
            if _healthy(self.endpoint_url, self.credentials):
                return
            time.sleep(0.02)
        self.stop()
        raise NotRunning(
            f"the S3 server on {self.host}:{self.port} did not answer within {READY_TIMEOUT:.0f} s",
            remedy=f"see {self.log}",
        )

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if self.external:
            raise ToolError(
                f"the S3 server of {ENDPOINT_VARIABLE} is not ours to pause", remedy=f"unset {ENDPOINT_VARIABLE}"
            )
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("the S3 server does not run", remedy=f"start it first; its log is {self.log}")
        self.process.send_signal(number)
        return self.process

    def _check_external(self) -> None:
        try:
            status, body = request(self.endpoint_url, self.credentials, "GET", "/")
        except OSError as error:
            raise NotRunning(
                f"no S3 server at {self.endpoint_url} ({ENDPOINT_VARIABLE}): {error}",
                remedy=f"start it, or unset {ENDPOINT_VARIABLE} to use one that is built and started here",
            ) from error
        if status != 200:
            raise NotRunning(
                f"{self.endpoint_url} answered {status} to a list of buckets: {body.decode(errors='replace')[:500]}",
                remedy="are PENSTOCK_TEST_S3_ACCESS_KEY, _SECRET_KEY and _REGION right?",
            )


def _external_credentials() -> Credentials:
    try:
        access_key = os.environ["PENSTOCK_TEST_S3_ACCESS_KEY"]
        secret_key = os.environ["PENSTOCK_TEST_S3_SECRET_KEY"]
    except KeyError as error:
        raise ToolError(
            f"{ENDPOINT_VARIABLE} is set, {error.args[0]} is not", remedy=f"set it, or unset {ENDPOINT_VARIABLE}"
        ) from error
    return Credentials(access_key, secret_key, os.environ.get("PENSTOCK_TEST_S3_REGION", "us-east-1"))


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(endpoint_url: str, credentials: Credentials) -> bool:
    """Whether a server answers there *and* knows our keys: another one may have taken the port before ours did."""
    try:
        return request(endpoint_url, credentials, "GET", "/", timeout=2.0)[0] == 200
    except OSError:
        return False


if __name__ == "__main__":
    from tools.s3command import main

    sys.exit(main())
