"""Fixtures that start a real server once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.servers import kind


def shared_server(
    name: str, set_up: Callable[[Any], object] = lambda server: None, **arguments: object
) -> Callable[[pytest.TempPathFactory], Iterator[Any]]:
    """Return a fixture that starts a server of ``tools.servers`` for the whole session.

    A test uses separate tables, topics or queues on it. A test that kills or pauses a server starts its own.

    Args:
        name: the server's module.
        set_up: creates objects on the started server.
        arguments: arguments of the server's class.
    """

    @pytest.fixture(scope="session")
    def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with kind(name)(tmp_path_factory.mktemp(name), **arguments) as server:
            set_up(server)
            yield server

    return started
