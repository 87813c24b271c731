"""Random events in the life of a FlinkJob: no record is lost or repeated, and the last edit takes effect.

`PENSTOCK_LIVES=2000` runs 2,000 lives, starting with the seed `PENSTOCK_FIRST_LIFE` (`make test-lives LIVES=2000`).
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.unit.operator.world.scenarios.life import Life

FIRST, LIVES = int(os.environ.get("PENSTOCK_FIRST_LIFE", "0")), int(os.environ.get("PENSTOCK_LIVES", "4"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
def test_a_random_life_loses_repeats_and_blocks_nothing(seed: int) -> None:
    asyncio.run(Life(seed).live())
