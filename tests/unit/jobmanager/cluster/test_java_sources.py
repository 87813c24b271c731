"""What the compiler among Spark's jars does not say about the engine's Java."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

SOURCES = [file for file in resources.files("penstock.jobmanager.cluster.jvm").iterdir() if file.name.endswith(".java")]


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
def test_no_private_method_is_synchronized(source: Traversable) -> None:
    """Janino makes a static method of it, with the lock of the class: all objects would wait for one."""
    found = re.findall(r"private synchronized[^;{]*", source.read_text())
    assert not found, f"make these package-private: {found}"
