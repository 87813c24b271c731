from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from penstock.rest.app import create_app
from penstock.rest.auth import TokenFile
from tests.unit.rest.access.current import Current
from tests.unit.rest.asgi_client import AsgiClient
from tests.unit.rest.fake_gateway import FakeGateway

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.rest.gateway import ClusterGateway


@pytest.fixture(scope="session")
def current() -> Current:
    return Current()


@pytest.fixture(scope="session")
def shared_client(current: Current) -> AsgiClient:
    return AsgiClient(create_app(cast("ClusterGateway", current)))


@pytest.fixture(scope="session")
def token_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tokens")
    write_tokens(folder / "admin", folder / "reader")
    return folder / "admin", folder / "reader"


@pytest.fixture(scope="session")
def shared_guarded(current: Current, token_files: tuple[Path, Path]) -> AsgiClient:
    admin, reader = (TokenFile(str(path)) for path in token_files)
    return AsgiClient(create_app(cast("ClusterGateway", current), admin, reader=reader))


def write_tokens(admin: Path, reader: Path) -> None:
    for path, token in ((admin, "s3cret\n"), (reader, "only-looking\n")):
        path.unlink(missing_ok=True)
        path.write_text(token)


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def client(shared_client: AsgiClient, current: Current, gateway: FakeGateway) -> AsgiClient:
    current.gateway = gateway
    return shared_client


@pytest.fixture
def tokens(token_files: tuple[Path, Path]) -> tuple[Path, Path]:
    """Return the files with the tokens of an admin and of a reader, as the test finds them: `s3cret` and `only-looking`."""
    write_tokens(*token_files)
    return token_files


@pytest.fixture
def guarded(
    shared_guarded: AsgiClient, current: Current, gateway: FakeGateway, tokens: tuple[Path, Path]
) -> AsgiClient:
    """Return a client of an application that requires a token."""
    current.gateway = gateway
    return shared_guarded
