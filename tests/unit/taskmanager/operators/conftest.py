"""Fixtures of the tests of operators."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["auto", "never"])
def grouping(request: pytest.FixtureRequest) -> str:
    """The values of a window operator's `grouping`."""
    return str(request.param)
