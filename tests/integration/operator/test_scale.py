"""Two hundred FlinkJobs: the operator's speed and memory, and the cost of an idle fleet for the API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.measures.operator import measure, missed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.operator.sim import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_two_hundred_jobs_meet_the_goals(play: Callable[[Callable[[Site], Awaitable[None]]], None]) -> None:
    async def scenario(site: Site) -> None:
        figures = await measure(site, jobs=200, edits=100)
        print(json.dumps(figures))
        assert missed(figures) == []

    play(scenario)
