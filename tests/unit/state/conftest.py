from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.state.support import KINDS, Backends

settings.register_profile("state", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("state")


@pytest.fixture(params=KINDS)
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backends]:
    """Of every kind; closed at the end."""
    made = Backends(request.param, tmp_path)
    yield made
    made.close()
