"""Measures beside the workloads. Each is a function (records or None, repetitions) -> figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Measure = Callable[[int | None, int], dict[str, Any]]

MEASURES: dict[str, Measure] = {}
