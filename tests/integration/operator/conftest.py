"""A real control plane for all tests here, and a separate site for each test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.operator.sim import Site, install_crds, open_site
from tools.devcluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """Start API server, controllers and scheduler, and install the CRDs."""
    with Cluster("operator-test", level="control") as cluster:
        install_crds(cluster)
        yield cluster


@pytest.fixture
def play(control_plane: Cluster, tmp_path: Path) -> Callable[[Callable[[Site], Awaitable[None]]], None]:
    """Return a function that runs a scenario on a separate site."""

    def run(scenario: Callable[[Site], Awaitable[None]]) -> None:
        async def main() -> None:
            async with open_site(control_plane, tmp_path) as site:
                await scenario(site)

        asyncio.run(main())

    return run
