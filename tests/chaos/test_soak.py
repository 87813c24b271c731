"""A short soak with each runner; `python -m tests.chaos.soak` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.soak import Soak

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 30.0


def test_random_faults(runner: str, tmp_path: Path) -> None:
    report = Soak(runner, random.randrange(1 << 32), SECONDS, tmp_path).run()
    print(report)
    assert not report.problems, str(report)
