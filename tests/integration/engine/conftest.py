"""Settings and folders of the self-verifying job. See `selfcheck`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.engine.selfcheck.driver import configuration

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def output(tmp_path: Path) -> str:
    return f"file://{tmp_path}/output"


@pytest.fixture
def settings(runner: str, tmp_path: Path) -> dict[str, str]:
    return configuration(runner, f"file://{tmp_path}")
