"""What the tests of checkpoints are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.checkpoint.bench import Bench
from tests.unit.checkpoint.support import faulty_storage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(*faulty_storage(tmp_path / "root"))
