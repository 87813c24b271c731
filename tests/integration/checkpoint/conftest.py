"""One S3 server for all tests here; each test has a folder of its own in it, and the same tests run on a directory."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.retrying_store import RetryPolicy
from tools.s3server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUCKET = "checkpoints"
QUICK = RetryPolicy(retry_for=20, pause=0.05, max_pause=0.5)
REQUEST_TIMEOUT = 2.0
"""Seconds; of `impatient` clients."""


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        server.create_bucket("elsewhere")
        yield server


@pytest.fixture
def s3_options(s3: S3Server) -> dict[str, Any]:
    return s3.storage_options()


@pytest.fixture
def impatient(s3_options: dict[str, Any]) -> dict[str, Any]:
    """Options for clients that notice a stopped server soon; on a busy machine they must be allowed to retry."""
    return {**s3_options, "request_timeout": REQUEST_TIMEOUT}


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    """Empty, on a directory and on S3."""
    if request.param == "file":
        return CheckpointStorage(str(tmp_path / "root"), uuid.uuid4().hex, policy=QUICK)
    options = request.getfixturevalue("s3_options")
    return CheckpointStorage(f"s3://{BUCKET}/{uuid.uuid4().hex}", uuid.uuid4().hex, options, policy=QUICK)


@pytest.fixture
def target(storage: CheckpointStorage) -> str:
    """A folder for savepoints beside the root."""
    return f"{storage.root_url}-savepoints"
