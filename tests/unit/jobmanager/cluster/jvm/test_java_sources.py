"""Problems of the engine's Java sources that the compiler among Spark's jars does not report."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

SOURCES = [file for file in resources.files("penstock.jobmanager.cluster.jvm").iterdir() if file.name.endswith(".java")]


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
def test_no_private_method_is_synchronized(source: Traversable) -> None:
    """Janino turns such a method into a static one that locks the class. All objects would then share one lock."""
    found = re.findall(r"private synchronized[^;{]*", source.read_text())
    assert not found, f"make these package-private: {found}"
