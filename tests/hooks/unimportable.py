"""A module that every process except a worker can import."""

from __future__ import annotations

import os
from typing import Any

if "PENSTOCK_TASKS" in os.environ:
    raise RuntimeError("out of order")


def unchanged(value: Any) -> Any:
    return value
