"""One real S3 server for the tests that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tools.s3server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("lake")
        yield server


@pytest.fixture
def s3(s3_server: S3Server, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A URL of the test's own, and the options to reach it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"s3://lake/{name}", s3_server.storage_options()
