"""A table of each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.lakehouse.lakes import IN_PROCESS, LAKES, Lake


@pytest.fixture(params=IN_PROCESS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    found: Lake = LAKES[request.param](tmp_path)
    return found
