"""What the tests of operators are given."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["auto", "never"])
def grouping(request: pytest.FixtureRequest) -> str:
    """Both ways a window operator may go."""
    return str(request.param)
