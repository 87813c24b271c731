"""A real control plane for all tests here, and in each test a site of its own."""

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
    """API server, controllers and scheduler, with the CRDs installed."""
    with Cluster("operator-test", level="control") as cluster:
        install_crds(cluster)
        yield cluster


@pytest.fixture
def play(control_plane: Cluster, tmp_path: Path) -> Callable[[Callable[[Site], Awaitable[None]]], None]:
    """Run a scenario on a site of its own."""

    def run(scenario: Callable[[Site], Awaitable[None]]) -> None:
        async def main() -> None:
            async with open_site(control_plane, tmp_path) as site:
                await scenario(site)

        asyncio.run(main())

    return run
