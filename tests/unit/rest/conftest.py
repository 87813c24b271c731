from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from penstock.rest.app import create_app
from tests.unit.rest.asgi_client import AsgiClient
from tests.unit.rest.current import Current
from tests.unit.rest.fake_gateway import FakeGateway

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


@pytest.fixture(scope="session")
def current() -> Current:
    return Current()


@pytest.fixture(scope="session")
def shared_client(current: Current) -> AsgiClient:
    return AsgiClient(create_app(cast("ClusterGateway", current)))


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def client(shared_client: AsgiClient, current: Current, gateway: FakeGateway) -> AsgiClient:
    current.gateway = gateway
    return shared_client
