from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from penstock.state.hashmap import segment_chain as chain
from penstock.state.hashmap import snapshot as hashmap_snapshot
from penstock.state.hashmap import tables
from penstock.state.snapshot_format import segment
from tests.unit.state.support import KINDS, Backends

settings.register_profile("state", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("state")


@pytest.fixture(params=KINDS)
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backends]:
    """Backends of every kind, which are closed at the end."""
    made = Backends(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small sizes, so that logs, merges and several blocks occur with few keys."""
    monkeypatch.setattr(chain, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(chain, "FULL_SHARE", 0.9)
    monkeypatch.setattr(chain, "MAX_LOGS", 6)
    monkeypatch.setattr(chain, "MERGE_WIDTH", 3)
    monkeypatch.setattr(hashmap_snapshot, "FILE_ELEMENTS", 8)
    monkeypatch.setattr(segment, "BLOCK_ELEMENTS", 3)
    monkeypatch.setattr(tables, "LARGE", 4)
