"""Access to the repository's examples for the tests that run them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def job_of(example: str) -> Any:
    """Import an example's `job.py` under a unique module name and return the module."""
    spec = importlib.util.spec_from_file_location(f"{example}_job", EXAMPLES / example / "job.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
