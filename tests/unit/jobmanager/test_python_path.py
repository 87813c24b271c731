"""Workers receive the paths on which the program finds its modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.in_process import environment, run


def test_workers_get_the_path_of_the_program_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    env = environment(tmp_path)
    env.from_collection([1]).print()
    path = run(env).settings.python_path
    standard = os.path.dirname(os.__file__)
    assert path.index(str(tmp_path / "modules")) < path.index(standard)
    assert standard in sys.path
