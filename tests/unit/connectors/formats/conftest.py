"""A fake schema registry for each test that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.connectors.formats import registry as registry_module
from tests.unit.connectors.formats.avro.fake_registry import Registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry_module, "_PAUSE_S", 0.01)
    server = Registry()
    yield server
    server.close()
