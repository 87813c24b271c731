"""A module that a worker cannot import, and everybody else can."""

from __future__ import annotations

import os
from typing import Any

if "PENSTOCK_TASKS" in os.environ:
    raise RuntimeError("out of order")


def unchanged(value: Any) -> Any:
    return value
