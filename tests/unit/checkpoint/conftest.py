"""Fixtures of the checkpoint tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.checkpoint.bench import Bench
from tests.unit.checkpoint.support import faulty_storage

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.store.faults import FaultyStore


@pytest.fixture
def pair(tmp_path: Path) -> tuple[CheckpointStorage, FaultyStore]:
    """Return storage on a separate folder, and the store behind it that can inject faults."""
    return faulty_storage(tmp_path / "root")


@pytest.fixture
def storage(pair: tuple[CheckpointStorage, FaultyStore]) -> CheckpointStorage:
    return pair[0]


@pytest.fixture
def faulty(pair: tuple[CheckpointStorage, FaultyStore]) -> FaultyStore:
    return pair[1]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(*faulty_storage(tmp_path / "root"))
