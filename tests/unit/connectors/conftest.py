"""One real S3 server for the tests that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import shared_server

if TYPE_CHECKING:
    from tools.servers.s3 import S3Server


s3_server = shared_server("s3", lambda server: server.create_bucket("lake"))


@pytest.fixture
def s3(s3_server: S3Server, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A separate URL for the test, and the options to connect to it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"s3://lake/{name}", s3_server.storage_options()
