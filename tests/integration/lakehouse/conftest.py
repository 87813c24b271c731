"""A lake of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.lakehouse.lakes import LAKES, Lake


@pytest.fixture(params=list(LAKES))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    found: Lake = LAKES[request.param](tmp_path)
    return found
