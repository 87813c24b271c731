"""One S3 server for all tests here. Each test has a separate folder in it, and the same tests run on a directory."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.retrying_store import RetryPolicy
from tests.servers import shared_server

if TYPE_CHECKING:
    from pathlib import Path

    from tools.servers.s3 import S3Server

BUCKET = "checkpoints"
QUICK = RetryPolicy(retry_for=20, pause=0.05, max_pause=0.5)
REQUEST_TIMEOUT = 2.0
"""Timeout of `impatient` clients, in seconds."""


s3 = shared_server("s3", lambda server: [server.create_bucket(name) for name in (BUCKET, "elsewhere")])


@pytest.fixture
def s3_options(s3: S3Server) -> dict[str, Any]:
    return s3.storage_options()


@pytest.fixture
def impatient(s3_options: dict[str, Any]) -> dict[str, Any]:
    """Return options of clients that detect a stopped server soon. They retry, because the machine may be busy."""
    return {**s3_options, "request_timeout": REQUEST_TIMEOUT}


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    """Return an empty storage, on a directory and on S3."""
    if request.param == "file":
        return CheckpointStorage(str(tmp_path / "root"), uuid.uuid4().hex, policy=QUICK)
    options = request.getfixturevalue("s3_options")
    return CheckpointStorage(f"s3://{BUCKET}/{uuid.uuid4().hex}", uuid.uuid4().hex, options, policy=QUICK)


@pytest.fixture
def target(storage: CheckpointStorage) -> str:
    """Return a folder for savepoints beside the root."""
    return f"{storage.root_url}-savepoints"
