from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from penstock.rest.server import RestServer
from tests.unit.cli.terminal import Terminal
from tests.unit.rest.access.current import Current
from tests.unit.rest.fake_gateway import FakeGateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.rest.gateway import ClusterGateway


@pytest.fixture(scope="session")
def shared_gateway() -> Current:
    return Current()


@pytest.fixture(scope="session")
def shared_server(shared_gateway: Current) -> Iterator[RestServer]:
    with RestServer(cast("ClusterGateway", shared_gateway), port=0) as server:
        yield server


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def terminal(shared_server: RestServer, shared_gateway: Current, gateway: FakeGateway) -> Terminal:
    """Return a terminal whose `penstock` connects to the fake cluster."""
    shared_gateway.gateway = gateway
    return Terminal({"PENSTOCK_MASTER": shared_server.url})


@pytest.fixture
def offline() -> Terminal:
    """Return a terminal without a cluster."""
    return Terminal({"PENSTOCK_MASTER": "http://localhost:1"})
